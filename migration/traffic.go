package migration

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// traffic is what the lanes of a drain carry together. Where they share a link, or a cap on the drain, they take from each other
// what they send: what one of them may begin does not follow from the rate that it has beside the others. So what they have
// begun is counted against what all of them can carry until the end, and near the end one that is alone may begin what it
// could not carry while it shared.
type traffic struct {
	taking sync.Mutex // held while a lane is handed out blocks beside what the others have begun

	mu      sync.Mutex
	pledged int64 // bytes that lanes have begun on and that have not left
	working int   // lanes that have something to send

	rate    float64       // bytes per second that they can carry; 0: not known
	lanes   int           // that worked when that was measured: fewer that carry less are no sign that it has become less
	present float64       // bytes per second in the last second or so
	known   time.Duration // how long it was measured
	since   time.Time
	bytes   int64
}

const (
	// trafficMemory is how long it counts what was measured: the lanes together are less even than each by itself, and what
	// is broken off in vain is more.
	trafficMemory = 2 * time.Second
	// slackShare of what lanes can carry is left over by fewer of them when what each waits for is its own connection.
	slackShare = 0.3
)

// work counts lanes that begin to send (1), or wait for something to send or end (-1). Time when none sends does not count.
func (t *traffic) work(lanes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.working += lanes
	if t.working == 0 {
		t.since = time.Time{}
	}
}

// carried notes bytes of a lane that have left, and says whether the lanes leave much over of what they can carry.
func (t *traffic) carried(l *lane, now time.Time, n int64) (slack bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.redeem(l, n)
	if t.working == 0 {
		return false
	}
	if t.since.IsZero() {
		t.since, t.bytes = now, 0
	}
	t.bytes += n
	took := now.Sub(t.since)
	if took >= paceMemory || took >= paceStep && t.rate > 0 {
		t.measure(took)
		t.since, t.bytes = now, 0
	}
	return t.working < t.lanes && t.present < t.rate*(1-slackShare)
}

func (t *traffic) measure(took time.Duration) {
	measured := float64(t.bytes) / took.Seconds()
	t.known += took
	t.present += (measured - t.present) * min(1, took.Seconds()/min(t.known, paceMemory).Seconds())
	if t.present < t.rate && t.working < t.lanes {
		return
	}
	t.rate += (measured - t.rate) * min(1, took.Seconds()/min(t.known, trafficMemory).Seconds())
	t.lanes = t.working
}

// pledge says that a lane has begun on so many bytes that have not left.
func (t *traffic) pledge(l *lane, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pledged += n - l.pledged
	l.pledged = n
}

func (t *traffic) redeem(l *lane, n int64) {
	n = min(n, l.pledged)
	t.pledged -= n
	l.pledged -= n
}

// left is how much can be sent until the end beside what lanes have begun; false: not known.
func (l *lane) left(now time.Time) (bytes float64, known bool) {
	through, known := l.through(now)
	l.d.traffic.mu.Lock()
	defer l.d.traffic.mu.Unlock()
	return through*(1-paceMargin) - float64(l.d.traffic.pledged), known
}

// through is what all lanes can carry until the end: no less than this one does by itself, no more than the cap.
func (l *lane) through(now time.Time) (bytes float64, known bool) {
	l.d.traffic.mu.Lock()
	most := l.d.traffic.rate
	l.d.traffic.mu.Unlock()
	if most > 0 {
		most = max(most, l.pace.rate)
	}
	if limit := l.d.limit.Limit(); limit != rate.Inf && (most == 0 || float64(limit) < most) {
		most = float64(limit)
	}
	return l.until.Sub(now).Seconds() * most, most > 0 && !l.until.IsZero()
}

// takeShare has the plan hand out blocks that are in time beside what all lanes have begun: those that would be at the rate
// that the lane has now, else those that would be if it had what the others leave, since it has nothing better to try.
func (l *lane) takeShare(blocks int, affordable int64) (batch []entry, wait time.Duration, err error) {
	t, room := &l.d.traffic, l.roomLeft()
	t.carried(l, time.Now(), l.gone(0))
	ahead := int64(len(l.buf)) + l.queue
	t.taking.Lock()
	defer t.taking.Unlock()
	t.pledge(l, ahead)
	left, known := l.left(time.Now())
	most := int64(math.MaxInt64 / 2)
	if known {
		most = int64(min(max(left, -1), math.MaxInt64/2))
	}
	batch, wait, err = l.d.plan.takeSome(l.batch[:0], blocks, laneBuffer, l.peer.Node, room, min(most, affordable))
	if err == errNoTime && known && !l.slack && most > affordable {
		batch, wait, err = l.d.plan.takeSome(l.batch[:0], blocks, laneBuffer, l.peer.Node, room, most)
	}
	for _, e := range batch {
		ahead += e.Bytes()
	}
	t.pledge(l, ahead)
	return batch, wait, err
}

// hopeless reports whether a block of which so much is left cannot be at the peer in time. Where lanes have begun more
// than they can carry, one goes back that little was sent of: what was sent is lost then, so for nearly all of a block there
// is more hope.
func (l *lane) hopeless(whole, left int64) bool {
	if left == 0 {
		return false
	}
	through, known := l.through(l.now)
	if !known || l.slack {
		return l.pace.hopeless(l.now, l.until, left)
	}
	hope := paceHope - (paceHope-1)*float64(left)/float64(whole)
	t := &l.d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	if float64(t.pledged) <= through*hope {
		return false
	}
	t.redeem(l, left)
	return true
}
