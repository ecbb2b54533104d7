package migration

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Where a disk of the vault should be mounted there may be an empty directory of segments, as a start before the disk's first mount
// makes it. What lies on the disk is not gone, whether that is found at a start or later.
func TestEmptyDirectoryWhereADiskOfTheVaultShouldBe(t *testing.T) {
	for name, meanwhile := range map[string]func(n *node){
		"when the agent starts": func(n *node) { n.reopen(t) },
		"while it runs":         func(*node) {},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := onDisks(t, "b", nil, "d0", "d1")
			f.give(n.more[0], 0)
			x := contentOf("x", 1000)
			wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
			aside := n.more[1] + "-unmounted"
			if err := errors.Join(os.Rename(n.more[1], aside), os.MkdirAll(filepath.Join(n.more[1], "segments"), 0o700)); err != nil {
				t.Fatal(err)
			}
			meanwhile(n)
			if status, body, _ := n.get(t, "cache/-/x", ""); status == 200 || !strings.Contains(string(body), "mounted") {
				t.Errorf("a reader: status %d %s, want that its disk is not mounted", status, body)
			}
			n.receive(t)
			r, err := n.vault.Catalog.Get("cache/-/x")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(n.receiver.check(r, &diskio.Work{}), n.vault.Reclaim(t.Context())); err != nil {
				t.Error(err)
			}
			if err := errors.Join(os.RemoveAll(n.more[1]), os.Rename(aside, n.more[1])); err != nil {
				t.Fatal(err)
			}
			n.vault.Revive(t.Context())
			if got := n.content(t, "cache/-/x"); !bytes.Equal(got, x) {
				t.Error("with its disk back it does not read as what came")
			}
		})
	}
}

// Who knows that a disk's segments are gone for good says so by a file of that name, and has the rest of the directory used.
func TestSegmentsThatAreSaidToBeGone(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.give(n.more[0], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	gone := segmentsIn(t, n.more[1])[0]
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	n.reopen(t)
	if why := n.vault.Away()[n.more[1]]; why == nil || !strings.Contains(why.Error(), "touch "+gone) {
		t.Errorf("got %v, want what to do", why)
	}
	write(t, gone, nil)
	if back := n.vault.Revive(t.Context()); len(back) != 1 {
		t.Errorf("%v are back, away %v", back, n.vault.Away())
	}
	n.receive(t)
	r, err := n.vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.receiver.check(r, &diskio.Work{}); !rotten(err) {
		t.Errorf("a block whose segment is empty: %v", err)
	}
}

// A directory of the vault that has two names, by a link or because its disk is mounted twice, is used by one of them. What is
// known by the one is no stray by the other.
func TestVaultDirectoryOfTwoNames(t *testing.T) {
	for first, second := range map[string]string{"vault": "d0", "d1": "d2"} {
		n := newNode(t, "b")
		n.vault.Close()
		real, link := filepath.Join(n.dir, first), filepath.Join(n.dir, second)
		n.more = []string{real}
		n.open(t)
		n.room = func(p string) int64 { return int64(strings.Count(p, first)) << 30 }
		x := contentOf("x", 1000)
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
		if err := os.Symlink(real, link); err != nil {
			t.Fatal(err)
		}
		n.more = []string{real, link}
		for range 2 {
			n.reopen(t)
			away := n.vault.Away()
			if len(away) != 1 {
				t.Fatalf("%s and %s: %v are away, want one of them", first, second, away)
			}
			for _, why := range away {
				if !strings.Contains(why.Error(), "is the same directory as") {
					t.Error(why)
				}
			}
			if got := n.content(t, "cache/-/x"); !bytes.Equal(got, x) {
				t.Error("it does not read as what came")
			}
		}
	}
}
