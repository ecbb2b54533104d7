package migration

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// A window keeps its blocks in whatever order the peer answers.
func TestWindow(t *testing.T) {
	var w window
	begun := func() (all []uint32) {
		for transfer := range w.all() {
			all = append(all, transfer)
		}
		return all
	}
	for i := range 10 * leastWindow {
		if got := w.add(plan.Entry{Block: tiny(i)}); got != uint32(i+1) {
			t.Fatalf("block %d is transfer %d", i, got)
		}
		if i%2 == 1 { // of each two transfers, the first is answered at once and the second later
			if e, ok := w.take(uint32(i)); !ok || e.ID != tiny(i-1).ID {
				t.Fatalf("transfer %d: got %s, %v", i, e.ID, ok)
			}
		}
	}
	if w.blocks != 5*leastWindow || w.bytes != 5000*leastWindow || w.span() != 10*leastWindow-1 {
		t.Errorf("got %d blocks, %d bytes, a span of %d", w.blocks, w.bytes, w.span())
	}
	for _, transfer := range []uint32{0, 1, 10*leastWindow + 1, 1 << 31} {
		if _, ok := w.take(transfer); ok || w.has(transfer) {
			t.Errorf("transfer %d was answered or never begun, and is there", transfer)
		}
	}
	left := begun()
	if len(left) != w.blocks || !slices.IsSorted(left) || left[0] != 2 {
		t.Errorf("%d transfers are left of %d, from %d", len(left), w.blocks, left[0])
	}
	for _, transfer := range slices.Backward(left) {
		if _, ok := w.take(transfer); !ok {
			t.Errorf("transfer %d is not there", transfer)
		}
	}
	if w.blocks != 0 || w.bytes != 0 || w.span() != 0 || len(begun()) != 0 {
		t.Errorf("all is answered, and there are %d blocks, %d bytes, a span of %d", w.blocks, w.bytes, w.span())
	}
}

// tiringDisks give some files at once, and then take their time over each.
type tiringDisks struct {
	*diskio.Well
	fresh atomic.Int64
}

func (d *tiringDisks) Readable(string) bool {
	if d.fresh.Add(-1) < 0 {
		time.Sleep(50 * time.Millisecond)
	}
	return true
}

// A lane whose disk has become slow takes no more blocks than it sends in a moment. Other lanes can take the rest.
func TestLanesShareTheBlocksOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		disks := &tiringDisks{Well: diskio.NewWell(func(string) (int64, error) { return 1 << 40, nil })}
		disks.fresh.Store(130) // batches of 1, 2, 4 ... 64 are had at once, and the next batch is all that is left
		a.Disks = disks
		const count = 250
		for i := range count {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), 1000))
		}
		b, c := newNode(t, "b"), newNode(t, "c")
		tr := newTrip(t, a, b, c)
		began, both := time.Now(), tr.cfg.Peers()
		tr.cfg.Connections, tr.cfg.Peers = 1, func() []Peer {
			if time.Since(began) < time.Second {
				return both[:1]
			}
			return both
		}
		sum, _ := tr.run(within(t, time.Minute))
		if sum.Moved.Blocks != count {
			t.Fatalf("got %+v, want all %d moved", sum, count)
		}
		if got := len(c.LandedBlocks()); got < 20 {
			t.Errorf("the peer that came later got %d of %d blocks", got, count)
		}
	})
}
