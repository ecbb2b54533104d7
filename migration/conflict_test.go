package migration

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Two nodes keep different bytes under one id. The first to leave has its receipt, and keeps what it stands for: the
// second's block is named as lost, at once and not at the deadline.
func TestSecondContentOfAnIDIsLostByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		c := newNode(t, "c")
		write(t, filepath.Join(a.dir, "cache/x"), []byte("a's x"))
		write(t, filepath.Join(b.dir, "cache/x"), []byte("b's x"))
		write(t, filepath.Join(b.dir, "cache/y"), []byte("b's y"))
		if sum, _ := a.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
			t.Fatalf("a: got %+v, want 1 moved", sum)
		}
		began := time.Now()
		sum, entries := b.drain(t, within(t, time.Minute), c)
		if lost := outcome(t, entries, Lost)["cache/-/x"]; sum.Moved.Blocks != 1 || !strings.Contains(lost.Reason, "another block of this id is here") {
			t.Fatalf("b: got %+v, %v", sum, entries)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s: a conflict is no reason to wait", took)
		}
		if got := c.content(t, "cache/-/x"); string(got) != "a's x" {
			t.Errorf("c serves %q", got)
		}
	})
}

// The same bytes under the same id are no conflict, whoever has them.
func TestSameContentOfTwoOriginsIsOneBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		c := newNode(t, "c", with(filesStore, "cache")) // has them in its own store, too
		for _, n := range []*node{a, b, c} {
			write(t, filepath.Join(n.dir, "cache/x"), contentOf("x", 3*ChunkBytes))
		}
		for _, n := range []*node{a, b} {
			if sum, entries := n.drain(t, within(t, time.Minute), c); sum.Moved.Blocks != 1 {
				t.Fatalf("%s: got %+v %v, want 1 moved", n.name, sum, entries)
			}
		}
		if len(c.landed) != 1 {
			t.Errorf("c took %d copies, want 1", len(c.landed))
		}
	})
}

// A block that came over another node is still its origin's: a newer version straight from there replaces it.
func TestNewerVersionFromTheOriginReplacesWhatCameOverAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c")
		write(t, filepath.Join(a.dir, "cache/x"), []byte("old"))
		a.drain(t, within(t, time.Minute), b)
		b.drain(t, within(t, time.Minute), c)
		write(t, filepath.Join(a.dir, "cache/x"), []byte("newer"))
		if sum, entries := a.drain(t, within(t, time.Minute), c); sum.Lost.Blocks != 0 {
			t.Fatalf("got %+v %v", sum, entries)
		}
		if got := c.content(t, "cache/-/x"); !bytes.Equal(got, []byte("newer")) {
			t.Errorf("c serves %q, want the newer version", got)
		}
	})
}
