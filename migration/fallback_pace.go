package migration

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// uplink is what the uploads of large blocks carry together. They may share a link: of many that go at once none is there in time then, and
// of a few some are. So they are measured as one. Few go until the first of them has got rid of something, and where all have more left
// than they carry until the end, those that began first go on and the others wait. Small ones do not count.
type uplink struct {
	under []*upload // that are under way, in the order in which they began
	going int       // have begun to send
	known bool      // that something of what the first sent has left

	bytes int64         // have left
	busy  time.Duration // while some were sent
	at    time.Time     // until then
}

const (
	// fewFirst is how many go until something has left: what they have in hand by then does not fill the shortest notice.
	fewFirst = 2
	// uplinkMemory is how long a measurement counts, at the least: a storage takes some MiB at once, and then nothing for seconds.
	uplinkMemory = 10 * time.Second
	// unloads is how long a storage asks for no more when it has to get rid of what it has first.
	unloads = 10 * time.Millisecond
	// mostInHand is how much of one content a storage has in memory, beside what it has got rid of.
	mostInHand = 8 << 20
)

// errPeersTake ends an upload that waits for others.
var errPeersTake = errors.New("peers take blocks again")

// rate is in bytes per second; 0: not known.
func (l *uplink) rate() float64 {
	if l.busy < paceMemory {
		return 0
	}
	return float64(l.bytes) / l.busy.Seconds()
}

// passes counts bytes that have left, and the time.
func (l *uplink) passes(bytes int64) {
	now := time.Now()
	if l.going > 0 {
		l.busy += now.Sub(l.at)
	}
	l.at = now
	l.bytes += bytes
	l.known = l.known || bytes > 0
	if l.busy > 2*uplinkMemory {
		l.busy, l.bytes = l.busy/2, l.bytes/2
	}
}

// left is how much is left of all that is under way.
func (l *uplink) left() (bytes float64) {
	for _, u := range l.under {
		bytes += float64(u.left())
	}
	return bytes
}

// left is how much of the block the storage has not got rid of yet.
func (u *upload) left() int64 { return u.bytes - u.gone }

// begins and ends bracket an upload.
func (u *upload) begins() {
	f := u.d.fallback
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.bytes > smallUpload {
		f.link.under = append(f.link.under, u)
	}
}

func (u *upload) ends() {
	u.leaves(u.bytes)
	f := u.d.fallback
	f.mu.Lock()
	defer f.mu.Unlock()
	f.link.passes(0)
	f.link.under = slices.DeleteFunc(f.link.under, func(other *upload) bool { return other == u })
	if u.going {
		f.link.going--
	}
	u.going = false
}

// asked says that the storage asks for more of the block, or has answered for what it has, so long after it was last given some: after a
// while it has got rid of that.
func (u *upload) asked(after time.Duration) {
	f := u.d.fallback
	f.mu.Lock()
	defer f.mu.Unlock()
	given := u.bytes - u.unsent
	gone := max(u.gone, given-mostInHand)
	if after >= unloads {
		gone = given
	}
	if u.going {
		f.link.passes(gone - u.gone)
	}
	u.gone = gone
}

// turn returns when the block may go on beside the others.
func (u *upload) turn(ctx context.Context) error {
	for u.waits(ctx) {
		if takes, _ := u.d.peersTake(); takes {
			return errPeersTake
		}
		if !diskio.Sleep(ctx, lookAtPeers) {
			return ctx.Err()
		}
	}
	return nil
}

func (u *upload) waits(ctx context.Context) bool {
	until := u.d.until(ctx)
	if until.IsZero() || u.bytes <= smallUpload {
		return false
	}
	few, late := u.behind(time.Until(until))
	if late {
		u.d.tooLate()
	}
	return few || late
}

// behind reports whether as many go as may before something has left, or the block would be late beside those before it that will not be.
func (u *upload) behind(left time.Duration) (few, late bool) {
	f := u.d.fallback
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.link
	l.passes(0)
	if !u.going && slices.Contains(l.under, u) { // else it was given back
		if !l.known && l.going >= fewFirst {
			return true, false
		}
		u.going = true
		l.going++
	}
	rate := l.rate()
	if rate == 0 {
		return false, false
	}
	through, ahead := left.Seconds()*(1-paceMargin)*rate, int64(0)
	for _, other := range l.under {
		goes := ahead == 0 || float64(ahead+other.left()) <= through
		if other == u {
			return false, !goes
		}
		if goes {
			ahead += other.left()
		}
	}
	return false, false
}
