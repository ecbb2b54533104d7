package receiver

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// The mount point of a vault's disk may have an empty directory of segments, as a start before the first mount makes it. The blocks
// on the disk are not gone, whether that shows at a start or later.
func TestEmptyDirectoryWhereADiskOfTheVaultShouldBe(t *testing.T) {
	for name, meanwhile := range map[string]func(n *node){
		"when the agent starts": func(n *node) { n.Reopen(t) },
		"while it runs":         func(*node) {},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := onDisks(t, "b", nil, "d0", "d1")
			f.Give(n.More[0], 0)
			x := contentOf("x", 1000)
			wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
			aside := n.More[1] + "-unmounted"
			if err := errors.Join(os.Rename(n.More[1], aside), os.MkdirAll(filepath.Join(n.More[1], "segments"), 0o700)); err != nil {
				t.Fatal(err)
			}
			meanwhile(n)
			if status, body, _ := n.Get(t, "cache/-/x", ""); status == 200 || !strings.Contains(string(body), "mounted") {
				t.Errorf("a reader: status %d %s, want that its disk is not mounted", status, body)
			}
			n.receive(t)
			r, err := n.Vault.Catalog.Get("cache/-/x")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(n.receiver.check(r, &diskio.Work{}), n.Vault.Reclaim(t.Context())); err != nil {
				t.Error(err)
			}
			if err := errors.Join(os.RemoveAll(n.More[1]), os.Rename(aside, n.More[1])); err != nil {
				t.Fatal(err)
			}
			n.Vault.Revive(t.Context())
			if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, x) {
				t.Error("with its disk back it does not read as what came")
			}
		})
	}
}

// An operator who knows that a disk's segments are gone for good makes a file of a segment's name, and the directory is used
// again.
func TestSegmentsThatAreSaidToBeGone(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.Give(n.More[0], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	gone := segmentsIn(t, n.More[1])[0]
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	if why := n.Vault.Away()[n.More[1]]; why == nil || !strings.Contains(why.Error(), "touch "+gone) {
		t.Errorf("got %v, want what to do", why)
	}
	write(t, gone, nil)
	if back := n.Vault.Revive(t.Context()); len(back) != 1 {
		t.Errorf("%v are back, away %v", back, n.Vault.Away())
	}
	n.receive(t)
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.receiver.check(r, &diskio.Work{}); !rotten(err) {
		t.Errorf("a block whose segment is empty: %v", err)
	}
}

// A directory of the vault that has two names, by a link or because its disk is mounted twice, is used under one of them. A
// segment that is known under the one is no stray under the other.
func TestVaultDirectoryOfTwoNames(t *testing.T) {
	for first, second := range map[string]string{"vault": "d0", "d1": "d2"} {
		n := newNode(t, "b")
		n.Vault.Close()
		real, link := filepath.Join(n.Dir, first), filepath.Join(n.Dir, second)
		n.More = []string{real}
		n.Open(t)
		n.Room = func(p string) int64 { return int64(strings.Count(p, first)) << 30 }
		x := contentOf("x", 1000)
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
		if err := os.Symlink(real, link); err != nil {
			t.Fatal(err)
		}
		n.More = []string{real, link}
		for range 2 {
			n.Reopen(t)
			away := n.Vault.Away()
			if len(away) != 1 {
				t.Fatalf("%s and %s: %v are away, want one of them", first, second, away)
			}
			for _, why := range away {
				if !strings.Contains(why.Error(), "is the same directory as") {
					t.Error(why)
				}
			}
			if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, x) {
				t.Error("it does not read as what came")
			}
		}
	}
}
