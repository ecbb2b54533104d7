package migration

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A disk hangs under who gives back the space of what was removed: what is to go from the others goes.
func TestRemovingIsNotHeldUpByOneDisk(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.give(n.more[0], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 10000)), blockFrames(2, "cache/-/x-2", contentOf("x-2", 10000))))
	f.give(n.more[0], 1<<40)
	f.give(n.more[1], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 10000))))
	r, err := n.vault.catalog.get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	// To open a pipe that nobody reads from hangs as what is done on a dead disk does.
	p := n.vault.segmentPath(r.Segment)
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Skipf("no pipe to hang on: %v", err)
	}
	thaw := sync.OnceFunc(func() {
		if w, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
			time.AfterFunc(100*time.Millisecond, func() { w.Close() })
		}
	})
	t.Cleanup(thaw)
	n.receive(t)
	gone := make(chan Count)
	go func() {
		for _, id := range []BlockID{"cache/-/x", "cache/-/y"} {
			removed, _ := n.receiver.Remove(t.Context(), "as is asked", func(h Held) bool { return h.ID == id })
			gone <- removed
		}
	}()
	time.AfterFunc(500*time.Millisecond, func() { f.set(f.bad, n.more[1], true) })
	late := time.After(9 * time.Second)
	for _, id := range []BlockID{"cache/-/x", "cache/-/y"} {
		select {
		case removed := <-gone:
			if removed.Blocks != 1 {
				t.Errorf("%s: removed %+v", id, removed)
			}
		case <-late:
			thaw()
			t.Fatalf("%s: nothing is removed while a disk hangs", id)
		}
	}
	if segments := segmentsIn(t, n.more[0]); len(segments) > 0 {
		t.Errorf("the space of y is not given back: there is %v", segments)
	}
	// Once the disk is back, its space comes back as any does.
	thaw()
	f.set(f.bad, n.more[1], false)
	n.vault.mu.Lock()
	hung := n.vault.hung[n.more[1]]
	n.vault.mu.Unlock()
	if hung != nil {
		<-hung
	}
}
