package migration

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// uplink is what the uploads of large blocks carry together. They may share a link: if many go at once none is there in time, and if a few
// do some are. So they are measured as one. Only a few go until a part of what they sent has left this machine. When all have more left than
// they can carry until the end, the uploads that began first go on and the others wait. Small blocks do not count.
type uplink struct {
	under []*upload // that are under way, in the order in which they began
	going int       // how many of them have begun to send
	known bool      // something of what the first ones sent has left

	bytes int64         // that have left
	busy  time.Duration // how long some upload was sending meanwhile
	at    time.Time     // busy is counted until then
}

const (
	// fewFirst is how many uploads go until something has left: what they have in hand by then does not fill the shortest notice.
	fewFirst = 2
	// uplinkMemory is how long a measurement counts, at the least: a storage takes some MiB at once, and then nothing for seconds.
	uplinkMemory = 10 * time.Second
	// unloads is the pause from which on a storage that asks for more is taken to have got rid of what it had.
	unloads = 10 * time.Millisecond
	// mostInHand is how much of one content a storage has in memory, beside what it has got rid of.
	mostInHand = 8 << 20
)

// errPeersTake ends an upload that waits for its turn: its block is for peers again.
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
	f := u.to
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.bytes > smallUpload {
		f.link.under = append(f.link.under, u)
	}
}

func (u *upload) ends() {
	u.leaves(u.bytes)
	f := u.to
	f.mu.Lock()
	defer f.mu.Unlock()
	f.link.passes(0)
	f.link.under = slices.DeleteFunc(f.link.under, func(other *upload) bool { return other == u })
	if u.going {
		f.link.going--
	}
	u.going = false
}

// asked says that the storage asks for more of the block, or has answered for what it has, that long after it was last given some. If
// that was unloads or longer, the storage has got rid of all that it was given.
func (u *upload) asked(after time.Duration) {
	f := u.to
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
		if takes, _ := u.to.peers.take(); takes {
			return errPeersTake
		}
		if !await.Sleep(ctx, lookAtPeers) {
			return ctx.Err()
		}
	}
	return nil
}

func (u *upload) waits(ctx context.Context) bool {
	until := u.to.out.until(ctx)
	if until.IsZero() || u.bytes <= smallUpload {
		return false
	}
	few, late := u.behind(time.Until(until))
	if late {
		u.to.tooLate()
	}
	return few || late
}

// behind reports whether the block has to wait: few, as fewFirst uploads go and nothing has left yet; or late, as the block would not be
// there in time beside the blocks before it that will be.
func (u *upload) behind(left time.Duration) (few, late bool) {
	f := u.to
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
