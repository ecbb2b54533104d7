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
