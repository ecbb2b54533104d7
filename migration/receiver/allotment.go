package receiver

import (
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// allotment is room on a disk that is set aside for a stream's blocks. It is given back when each of the blocks has its
// verdict and the stream takes no more of it.
type allotment struct {
	left    int64        // what the stream may still take
	until   time.Time    // when the stream has to ask the disks again
	holders atomic.Int64 // the stream, and each block that took its part
	written atomic.Int64
	release func(written int64)
}

// newAllotment returns an allotment with one holder, its maker.
func newAllotment(left int64, release func(int64)) *allotment {
	a := &allotment{left: left, until: time.Now().Add(diskio.LookAfter), release: release}
	a.holders.Store(1)
	return a
}

// take gives a block its part, and reports false if less than that is left or the allotment has expired.
func (a *allotment) take(bytes int64) bool {
	if a == nil || a.left < bytes || time.Now().After(a.until) {
		return false
	}
	a.grant(bytes)
	return true
}

// grant gives a block the part that was set aside for it, even after the allotment has expired.
func (a *allotment) grant(bytes int64) {
	a.left -= bytes
	a.holders.Add(1)
}

// grow adds room that is given back together with the allotment's. Its caller is a holder.
func (a *allotment) grow(release func(int64)) {
	first := a.release
	a.release = func(written int64) { first(written); release(0) }
}

// drop is called once by each holder, with the bytes that the holder may have written. The last drop gives the room
// back.
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
	// allotBytes is how much room a stream sets aside at once: enough for a thousand blocks of 4 KiB. Asking the disks for
	// each of them took a tenth of the time to receive them (docs/design/measured.md).
	allotBytes = 4 << 20
	// allotShare bounds what a stream sets aside beyond what it needs now: one part in so many of the room that is left.
	// So thirty-two streams that no longer use theirs still leave most of the room to others.
	allotShare = 128
)

// allot sets room aside on the best of these directories: for a block or its first bytes, and if there is plenty of room, for blocks that
// may follow.
func (v *volumes) allot(bytes, first int64, among []string) (dir string, a *allotment, err error) {
	if step := min(allotBytes, v.most(v.open(among))/allotShare); step > bytes {
		if dir, release, err := v.take(step, step, among); err == nil {
			return dir, newAllotment(step, release), nil
		}
	}
	dir, release, err := v.take(bytes, first, among)
	return dir, newAllotment(bytes, release), err
}
