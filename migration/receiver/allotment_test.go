package receiver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Room that is taken in steps goes back when the last block of a step has its verdict. A step expires soon after what is
// known of the disk does.
func TestAllotmentEndsWithItsLastBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, written := 0, int64(0)
		a := newAllotment(100, func(bytes int64) { released, written = released+1, bytes })
		if !a.take(60) || a.take(60) || !a.take(40) {
			t.Error("of 100 bytes 60 and 40 may be taken, and not 60 twice")
		}
		a.drop(0) // the stream takes from another allotment
		a.drop(60)
		if released != 0 {
			t.Error("room was given back under a block")
		}
		a.drop(30)
		if released != 1 || written != 90 {
			t.Errorf("room was given back %d times with %d bytes written, want once with 90", released, written)
		}
		a = newAllotment(100, func(int64) {})
		time.Sleep(diskio.LookAfter + time.Millisecond)
		if a.take(1) {
			t.Error("a disk was not asked for longer than somebody looks whether it hangs")
		}
	})
}

// Where little is left, streams set aside no more than they need now.
func TestStreamsTakeStepsOnlyWhereThereIsPlenty(t *testing.T) {
	for room, want := range map[int64]int64{1 << 40: allotBytes, 10 << 20: (10 << 20) / allotShare, 1 << 20: 32 << 10} {
		n := newNode(t, "b")
		disks := newFakeDisks(room, n.Vault.Dir)
		n.Disks, n.Room = disks, roomFor(room)
		n.receive(t)
		dir, a, err := n.receiver.allot(32<<10, 32<<10, []string{n.Vault.Dir})
		if err != nil || dir != n.Vault.Dir || disks.Reserved[dir] != want {
			t.Errorf("of %d bytes %d are set aside in %q (%v), want %d", room, disks.Reserved[dir], dir, err, want)
		}
		a.drop(0)
		if disks.Reserved[dir] != 0 {
			t.Errorf("%d bytes stay set aside", disks.Reserved[dir])
		}
	}
}
