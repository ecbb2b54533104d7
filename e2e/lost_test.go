package e2e_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// brief is a timeout that a story can wait out, and that the slowest machine notices while most of it is left.
const brief = "15s"

// namesLost fails the test unless every block is named as lost, with a reason that has one of the words.
func (n *node) namesLost(m manifestView, words ...string) {
	n.f.t.Helper()
	lost := m.lost()
	if len(lost) != len(n.wholes()) || m.Blocks.Lost != int64(len(lost)) || m.Blocks.Moved != 0 {
		n.f.t.Errorf("manifest of %s: got %+v, naming %d, want all of %d lost", n.host, m.Blocks, len(lost), len(n.wholes()))
	}
	for id, reason := range lost {
		if !n.wholes()[id] || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(reason, w) }) {
			n.f.t.Errorf("manifest of %s: %s is lost because %q, want it to tell one of %q", n.host, id, reason, words)
			return // one is enough
		}
	}
}

// knownLost fails the test unless the coordinator and each of the nodes answer that the block is lost.
func (f *fleet) knownLost(id string, at ...*node) {
	f.t.Helper()
	f.verb("locate", id).exits(4).tells("lost")
	f.verb("get", id).exits(4).tells("lost")
	if b := f.held()[id]; b.State != "lost" {
		f.t.Errorf("lifeboat blocks says of %s: %+v, want it lost", id, b)
	}
	for _, n := range at {
		if got := n.onSocket().get(f.t, id, ""); got.code != http.StatusGone {
			f.t.Errorf("%s, asked for the lost %s: got status %d (%s), want 410", n.host, id, got.code, got.body)
		}
	}
}

func TestPeersWithoutRoom(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a"), f.agent("host-b", noRoom), f.agent("host-c", noRoom)
	a.fill(5, 100<<10)
	a.shuffle(3, 50<<10)
	f.up()
	f.verb("decommission", "host-a", "--timeout", brief, "--wait").exits(4).tells("lost")
	a.namesLost(a.manifest(), "room", "full", "no peer")
	a.verb("decommission", "--self", "--wait").exits(4).tells("lost")
	a.kill()
	f.knownLost(a.blocks[0].id, b, c)
	f.coordinator.kill()
	f.coordinator.start()
	f.until(b.is("ACTIVE"))
	f.knownLost(a.blocks[0].id)
}

func TestNoPeerAtAll(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a")
	a.fill(5, 100<<10)
	f.start()
	a.verb("decommission", "--self", "--timeout", brief, "--wait").exits(4).tells("lost")
	f.until(a.is("DECOMMISSIONED"))
	a.namesLost(a.manifest(), "no peer")
	a.verb("manifest", "--self").exits(4).tells(a.blocks[0].id, "no peer")
	f.verb("manifest", "host-a").exits(4).tells(a.blocks[0].id, "no peer")
}

func TestDeadlineComesFirst(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", "drain: {max_bytes_per_second: 1MiB, tail: 3s}"), f.agent("host-b")
	a.fill(40, 24<<20)
	f.up()
	f.verb("decommission", "host-a", "--timeout", brief, "--wait").exits(4).tells("lost")
	m := a.manifest()
	moved, lost := m.Blocks.Moved, m.lost()
	if moved == 0 || len(lost) == 0 || moved+int64(len(lost)) != int64(len(a.wholes())) {
		t.Fatalf("manifest: got %+v and %d named lost, want some moved, some lost, %d together", m.Blocks, len(lost), len(a.wholes()))
	}
	a.kill()
	var left string
	var safe []block
	for _, x := range a.blocks {
		if reason, is := lost[x.id]; !is {
			safe = append(safe, x)
		} else if left = x.id; !strings.Contains(reason, "deadline") {
			t.Errorf("%s is lost because %q, want it to tell of the deadline", x.id, reason)
		}
	}
	b.onSocket().serves(t, safe)
	f.knownLost(left, b)
}

func TestBlocksChangeWhileTheyAreSent(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", slow), f.agent("host-b")
	a.fill(24, 4<<20)
	f.up()
	slices.SortFunc(a.blocks, func(x, y block) int { return int(x.bytes - y.bytes) }) // about the order in which they leave
	a.verb("decommission", "--self", "--timeout", "90s").exits(0)
	a.underWay(3)
	gone, rewritten, grown := &a.blocks[23], &a.blocks[22], &a.blocks[21]
	for _, x := range []*block{gone, rewritten, grown} {
		if _, sent := a.receipted()[x.id]; sent {
			t.Fatalf("%s, one of the largest, has left already", x.id)
		}
	}
	var early *block // a block that changes after it was sent
	for i := range a.blocks {
		if _, sent := a.receipted()[a.blocks[i].id]; sent {
			early = &a.blocks[i]
			break
		}
	}
	if err := os.Remove(gone.path); err != nil {
		t.Fatal(err)
	}
	rewritten.rewrite(t, rewritten.bytes)
	grown.rewrite(t, grown.bytes+5000)
	early.rewrite(t, early.bytes)

	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	m := a.manifest()
	if len(m.lost()) != 0 {
		t.Errorf("lost: %v", m.lost())
	}
	if !slices.ContainsFunc(m.Entries, func(e entryView) bool {
		return e.ID == gone.id && e.Outcome == "skipped" && strings.Contains(e.Reason, "deleted")
	}) {
		t.Errorf("%s was deleted amid the drain, and the manifest does not say that it is skipped for that: %+v", gone.id, m.Entries)
	}
	a.kill()
	b.onSocket().serves(t, a.blocks[:23])
	if got := b.onSocket().get(t, gone.id, ""); got.code == http.StatusOK && sum(got.body) != gone.sha256 {
		t.Errorf("the deleted block is served, and wrongly: %d of %d bytes", len(got.body), gone.bytes)
	}
}

// rewrite replaces a file as engines do: it writes other bytes to a new file, and renames that over the old one.
func (b *block) rewrite(t *testing.T, bytes int64) {
	t.Helper()
	text := make([]byte, bytes)
	rand.Read(text) // never fails
	if err := os.WriteFile(b.path+".tmp", text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.path+".tmp", b.path); err != nil {
		t.Fatal(err)
	}
	b.bytes, b.sha256 = bytes, sum(text)
}

func TestBlockIsCutShortInPlace(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", slow), f.agent("host-b")
	a.fill(2, 4<<20)
	f.up()
	slices.SortFunc(a.blocks, func(x, y block) int { return int(y.bytes - x.bytes) })
	big := &a.blocks[0]
	a.verb("decommission", "--self", "--timeout", "60s").exits(0)
	f.until(func() error {
		if s := a.status(); s.Drain == nil {
			return fmt.Errorf("no drain yet")
		}
		return nil
	})
	text, err := os.ReadFile(big.path)
	if err != nil {
		t.Fatal(err)
	}
	short := text[:len(text)/2]
	if err := os.Truncate(big.path, int64(len(short))); err != nil { // while it may be being read
		t.Fatal(err)
	}
	big.bytes, big.sha256 = int64(len(short)), sum(short)
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	a.located()
	a.kill()
	b.onSocket().serves(t, a.blocks)
	f.gets(a.blocks)
}
