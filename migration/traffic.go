package migration

import (
	"slices"
	"sync"
	"time"
)

// traffic is what the lanes of a drain carry together. Where they share a link, or a cap on the drain, one sends what the others
// cannot: the rate that a lane has beside the others does not tell what it may begin. So what lanes have begun is counted against
// what all of them can carry until the end, and near the end a lane that is alone may begin a block that it could not have carried
// while it shared.
type traffic struct {
	taking sync.Mutex // held while a lane is handed out blocks beside what the others have begun

	mu      sync.Mutex
	pledged int64   // bytes that lanes have begun on and that have not left
	begun   []*load // of the lanes that have, those with less left first
	working int     // lanes that have something to send
	holding int     // of them, those that leave the link to others

	rate    float64       // bytes per second that they can carry; 0: not known
	lanes   int           // that worked when it was measured
	present float64       // bytes per second in the last second or so
	known   time.Duration // how long it was measured
	since   time.Time
	bytes   int64
}

// load is a lane's part of the traffic, which guards it.
type load struct {
	pledged int64 // its part of traffic.pledged, unless its peer takes nothing
	sends   bool  // it has something to send
	quiet   bool  // its peer takes nothing
	counts  bool  // it is one of traffic.working
}

const (
	// trafficMemory is how long a measurement counts: longer than a lane's own (paceMemory), for the lanes together are
	// less even than each by itself, and more is lost when one is broken off in vain.
	trafficMemory = 2 * time.Second
	// fewerMemory is how long a measurement of fewer lanes counts.
	fewerMemory = 5 * trafficMemory
	// slackShare is the part of what all lanes can carry that fewer of them must leave over. Then it is certain that each waits
	// for its own connection, and not for the link.
	slackShare = 0.3
	// clearly is how much less a lane must have left than another to go before it. Each lane's count falls in steps of what
	// it writes at once, and the lane that looks has just written: of equal lanes each in turn would else find itself
	// before all others.
	clearly = 4 * laneBuffer
)

// work says that a lane begins to send (sends), or that it ends or waits for blocks. Time in which no lane sends does not count.
func (t *traffic) work(l *load, sends bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.sends = sends
	t.count(l)
}

// quiet says that a lane's peer takes nothing (is), or takes something again. Meanwhile what the lane has begun is in no other lane's
// way, and that it carries nothing says nothing of the other lanes.
func (t *traffic) quiet(l *load, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is == l.quiet {
		return
	}
	if l.quiet = is; is {
		t.pledged -= l.pledged
		t.begun = slices.DeleteFunc(t.begun, func(other *load) bool { return other == l })
	} else if l.pledged > 0 {
		t.pledged += l.pledged
		t.begun = append(t.begun, l)
		t.advance(l)
	}
	if t.count(l); is && t.working == 0 {
		t.unmeasure()
	}
}

func (t *traffic) count(l *load) {
	if works := l.sends && !l.quiet; works != l.counts {
		if l.counts = works; works {
			t.working++
		} else {
			t.working--
		}
	}
	if t.working == 0 {
		t.since = time.Time{}
	}
}

func (t *traffic) unmeasure() {
	t.rate, t.lanes, t.present, t.known, t.since = 0, 0, 0, 0, time.Time{}
}

// forget drops what was measured, if no lane has begun anything, and reports whether it did.
func (t *traffic) forget() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pledged > 0 {
		return false
	}
	t.unmeasure()
	return true
}

// hold counts lanes that leave the link to others (1), or no longer (-1).
func (t *traffic) hold(lanes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holding += lanes
}

// carried notes bytes of a lane that have left, and says whether the lanes leave much over of what they can carry.
func (t *traffic) carried(l *load, now time.Time, n int64) (slack bool) {
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
	return t.fewer() && t.leavesMuch()
}

// leavesMuch reports whether lanes leave much over of what they can carry.
func (t *traffic) leavesMuch() bool { return t.present < t.rate*(1-slackShare) }

// fewer reports whether fewer lanes send than when the rate was measured.
func (t *traffic) fewer() bool { return t.working-t.holding < t.lanes }

// measure takes in what was carried, in pieces that are as long as what a lane writes at once: much noise around a mean. That
// fewer lanes carry less is a weak sign that all of them would, and none if it is much less.
func (t *traffic) measure(took time.Duration) {
	measured, memory := float64(t.bytes)/took.Seconds(), trafficMemory
	t.known += took
	t.present += (measured - t.present) * min(1, took.Seconds()/min(t.known, paceMemory).Seconds())
	if t.fewer() {
		if t.leavesMuch() {
			return
		}
		memory = fewerMemory
	}
	if t.working > t.lanes || t.present >= t.rate {
		t.lanes = t.working
	}
	t.rate += (measured - t.rate) * min(1, took.Seconds()/min(t.known, memory).Seconds())
}

// pledge says that a lane has begun on so many bytes that have not left.
func (t *traffic) pledge(l *load, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	more := n - l.pledged
	if l.pledged = n; l.quiet {
		return
	}
	t.pledged += more
	grows := more > 0
	if at := slices.Index(t.begun, l); at >= 0 && (grows || n == 0) {
		t.begun = slices.Delete(t.begun, at, at+1)
	}
	if grows {
		t.begun = append(t.begun, l)
	}
	t.advance(l)
}

func (t *traffic) redeem(l *load, n int64) {
	n = min(n, l.pledged)
	l.pledged -= n
	if !l.quiet {
		t.pledged -= n
		t.advance(l)
	}
}

// advance puts a lane before those that have clearly more left.
func (t *traffic) advance(l *load) {
	for at := slices.Index(t.begun, l); at > 0 && l.pledged+clearly < t.begun[at-1].pledged; at-- {
		t.begun[at-1], t.begun[at] = l, t.begun[at-1]
	}
}

// speed is how fast lanes can carry together, in bytes per second; 0: not known.
func (t *traffic) speed() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rate
}

// begunOn is how many bytes lanes have begun on that have not left.
func (t *traffic) begunOn() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pledged
}

// prospect says what is to become of a lane's block of which so much is left, where all lanes can carry so much until the end (through).
// Where they have begun more, those with the least left go first, and nothing is lost while the others hold back: what was measured in
// the first second may be wrong. The first of them is broken off the sooner the less was sent of its block, since what was sent is lost
// then.
func (t *traffic) prospect(l *load, through float64, whole, left int64) prospect {
	t.mu.Lock()
	defer t.mu.Unlock()
	if float64(t.pledged) <= through {
		return goAhead
	}
	ahead := t.ahead(l)
	hope := paceHope
	if ahead == 0 {
		hope -= (paceHope - 1) * float64(left) / float64(whole)
	}
	switch with := float64(ahead + l.pledged); {
	case with > through*hope:
		t.redeem(l, left)
		return breakOff
	case with > through && ahead > 0:
		return holdBack
	}
	return goAhead
}

// ahead is how much is left of what the lanes before this one have begun.
func (t *traffic) ahead(l *load) (bytes int64) {
	for _, other := range t.begun {
		if other == l {
			break
		}
		bytes += other.pledged
	}
	return bytes
}
