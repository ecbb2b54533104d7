package migration

import (
	"math"
	"time"
)

// pace is how fast a lane carries blocks, measured over the last second or so, and what follows from it: what may still be
// begun, and what is better broken off.
type pace struct {
	rate  float64       // bytes per second; 0: not known
	known time.Duration // how long it was measured
	stood bool          // the last measurement took so long that the link may have stood still
	since time.Time
	bytes int64
}

const (
	paceStep   = 200 * time.Millisecond
	paceMemory = time.Second
	// paceMargin is kept back of the time that is left, for links that slow down and for the commit at the peer.
	paceMargin = 0.1
	// paceHope is how many times faster than measured a block that was begun may have to go on before it is broken off. What was
	// sent of it is lost then, so noise must not do that.
	paceHope = 1.5
)

// start says that something is to be carried after a time when there was nothing.
func (p *pace) start(now time.Time) {
	if p.since.IsZero() {
		p.since, p.bytes = now, 0
	}
}

// rest says that there is nothing to carry: the time until the next start does not count.
func (p *pace) rest() { p.since = time.Time{} }

// carried notes bytes that the connection has taken.
func (p *pace) carried(now time.Time, n int64) {
	p.start(now)
	p.bytes += n
	took := now.Sub(p.since)
	if took < paceStep {
		return
	}
	measured := float64(p.bytes) / took.Seconds()
	if p.rate == 0 {
		p.rate = measured
	} else {
		p.rate += (measured - p.rate) * (1 - math.Exp(-took.Seconds()/paceMemory.Seconds()))
	}
	p.known += took
	p.stood = took >= paceMemory
	p.since, p.bytes = now, 0
}

// soFar is the rate, or what is known of it before it was measured.
func (p *pace) soFar(now time.Time) float64 {
	if p.rate > 0 || p.bytes == 0 {
		return p.rate
	}
	return float64(p.bytes) / now.Sub(p.since).Seconds()
}

// affordable returns how large a block that is begun now may be to reach the peer in time, behind the bytes ahead of it that are
// on their way. A lane that has not measured anything goes by what others measured (assumed); if none has, anything may be
// tried.
func (p *pace) affordable(now, until time.Time, ahead int64, assumed float64) int64 {
	rate := p.rate
	if rate == 0 {
		rate = assumed
	}
	if until.IsZero() || rate == 0 {
		return math.MaxInt64
	}
	most := until.Sub(now).Seconds()*(1-paceMargin)*rate - float64(ahead)
	return int64(min(max(most, -1), math.MaxInt64/2))
}

// hopeless reports whether a block of which so much is left cannot be at the peer in time. A connection that was at rest is
// slow at first: nothing is given up for that.
func (p *pace) hopeless(now, until time.Time, left int64) bool {
	if until.IsZero() || p.known < paceMemory {
		return false
	}
	return float64(left) > until.Sub(now).Seconds()*p.rate*paceHope
}
