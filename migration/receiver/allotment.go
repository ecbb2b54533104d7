package receiver

import (
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// allotment is room on disks that is set aside for blocks of a stream, until each of them has its verdict and the stream
// takes no more of it.
type allotment struct {
	left    int64        // what the stream may still take
	until   time.Time    // when it has to ask again whether blocks may be put there
	holders atomic.Int64 // the stream, and every block
	written atomic.Int64
	release func(written int64)
}

// newAllotment is held by whoever made it.
func newAllotment(left int64, release func(int64)) *allotment {
	a := &allotment{left: left, until: time.Now().Add(diskio.LookAfter), release: release}
	a.holders.Store(1)
	return a
}

// take gives a block its part, if there is so much.
func (a *allotment) take(bytes int64) bool {
	if a == nil || a.left < bytes || time.Now().After(a.until) {
		return false
	}
	a.grant(bytes)
	return true
}

// grant gives a block the part that was set aside for it, however long that is ago.
func (a *allotment) grant(bytes int64) {
	a.left -= bytes
	a.holders.Add(1)
}

// grow has more be given back with it. Who calls it is a holder.
func (a *allotment) grow(release func(int64)) {
	first := a.release
	a.release = func(written int64) { first(written); release(0) }
}

// drop is what every holder does once, and says how much it may have written.
func (a *allotment) drop(written int64) {
	if a == nil {
		return
	}
	a.written.Add(written)
	if a.holders.Add(-1) == 0 {
		a.release(a.written.Load())
	}
}

const (
	// allotBytes is how much room a stream sets aside at once: a thousand blocks of 4 KiB. To ask the disks for each of them
	// was a tenth of what they cost to receive (docs/design/measured.md).
	allotBytes = 4 << 20
	// allotShare bounds what a stream sets aside beyond what it needs now: one part in so many of the room that is left.
	// Thirty-two streams that no longer use theirs still leave most of it to the others.
	allotShare = 128
)

// allot sets room aside on the best of these directories: for a block, or the first of it, and if there is plenty for some that may follow.
func (r *Receiver) allot(bytes, first int64, among []string) (dir string, a *allotment, err error) {
	if step := min(allotBytes, r.most(r.open(among))/allotShare); step > bytes {
		if dir, release, err := r.take(step, step, among); err == nil {
			return dir, newAllotment(step, release), nil
		}
	}
	dir, release, err := r.take(bytes, first, among)
	return dir, newAllotment(bytes, release), err
}
