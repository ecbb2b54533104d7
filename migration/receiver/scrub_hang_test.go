package receiver

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/vault"
)

// A disk hangs while landed blocks are read back from it: a broken block on another disk is found all the same.
func TestReadingBackIsNotHeldUpByOneDisk(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	y := contentOf("y", 1000)
	f.Give(n.More[0], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	f.Give(n.More[0], 1<<40)
	f.Give(n.More[1], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", y)))
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	flip(t, n.More[0], y, 10)
	thaw := hangsOpen(t, n.SegmentPath(r.Segment))
	broken := make(chan vault.Held, 10)
	n.tune = func(cfg *Config) { cfg.Broken = func(h vault.Held) { broken <- h } }
	n.receive(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.receiver.Run(ctx) })
	defer running.Wait()
	defer stop()
	defer thaw()
	n.receiver.Suspect("cache/-/x")
	time.AfterFunc(500*time.Millisecond, func() {
		f.Set(f.Bad, n.More[1], true)
		n.receiver.Suspect("cache/-/y")
	})
	select {
	case h := <-broken:
		if h.ID != "cache/-/y" {
			t.Errorf("%s is broken", h.ID)
		}
	case <-time.After(9 * time.Second):
		t.Error("nobody looks at y, which a reader found broken, on the disk that answers")
	}
}

// hangsOpen puts a pipe in the place of a file. Opening a pipe without a writer hangs as a dead disk does, until thaw.
func hangsOpen(t *testing.T, file string) (thaw func()) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Skipf("no pipe to hang on: %v", err)
	}
	thaw = sync.OnceFunc(func() {
		if w, err := os.OpenFile(file, os.O_RDWR, 0); err == nil {
			time.AfterFunc(100*time.Millisecond, func() { w.Close() })
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// What a disk or the catalog does not answer about is yet to be read back, and is not passed by until the next day.
func TestWhatCannotBeReadBackWaits(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	x := contentOf("x", 1000)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	all := vault.UnreadStretch{To: r.Offset + r.Length}
	u := &n.Vault.Unread
	u.TakeSegment(time.Now().Add(time.Hour), scrubAfter)
	want := func(what string, waits bool) {
		t.Helper()
		n.receiver.readSegment(t.Context(), r.Segment, all)
		n.receiver.readPlaced(t.Context(), vault.UnreadPlaced{Since: time.Now()})
		no, s, _ := u.TakeSegment(time.Now().Add(time.Hour), scrubAfter)
		if (no == r.Segment && s.To == all.To) != waits {
			t.Errorf("%s: segment %d waits up to byte %d", what, no, s.To)
		}
	}
	wantPlaced := func(what string, waits bool) {
		t.Helper()
		if p, _ := u.TakePlaced(time.Now().Add(time.Hour), scrubAfter); p.Since.IsZero() == waits {
			t.Errorf("%s: what lies in place waits is %t", what, !waits)
		}
	}
	want("all answers", false)
	f.Set(f.Bad, n.More[0], true)
	want("the segment's disk is silent", true)
	wantPlaced("a segment's disk is silent", false)
	f.Set(f.Bad, n.More[0], false)
	flip(t, n.More[0], x, 10)
	goOn := n.hangCatalog(f)
	want("the catalog does not say what is broken", true)
	wantPlaced("nor what lies in place", true)
	goOn()
	want("the catalog answers", false)
}
