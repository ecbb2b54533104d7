package migration

import (
	"sync"
	"time"
)

const (
	// smallUpload is what costs the fallback its latency and little else.
	smallUpload = 128 << 10
	// mostSmall bounds the small blocks that are uploaded at once, and so the memory for them: 32 MiB twice.
	mostSmall = 256
	// crowdSpan is how long it is counted what arrives, at the least: most of a second or two of any notice goes by with the most at once.
	crowdSpan = 250 * time.Millisecond
	// crowdPays is how many times as much must arrive when twice as many are under way.
	crowdPays = 1.2
	// crowdHold is how long more are not tried once that did not pay, or something was refused.
	crowdHold = 5 * time.Second
)

// crowd is how many blocks go to the fallback at once. A small one takes a storage as long as a medium one, and most storages take
// hundreds side by side: there are twice as many as long as more arrive for that, and half as many when one is refused.
type crowd struct {
	mu      sync.Mutex
	least   int       // go whatever their size
	allowed int       // with the small ones
	helping int       // beside the least
	arrived int       // small ones, since then
	since   time.Time // zero: nothing has
	good    int       // with so many it went best
	best    float64   // so many a second; 0: not known
	hold    time.Time // no more before
}

func newCrowd(least int) *crowd { return &crowd{least: least, allowed: least, good: least} }

// join reports whether one more may help. It leaves when it ends.
func (c *crowd) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.least+c.helping >= c.allowed {
		return false
	}
	c.helping++
	return true
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.helping--
}

// full reports whether somebody who helps should end.
func (c *crowd) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.least+c.helping > c.allowed
}

// arrives counts a small block.
func (c *crowd) arrives(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = now
		return
	}
	c.arrived++
	took := now.Sub(c.since)
	if took < crowdSpan || c.arrived < c.allowed {
		return
	}
	rate := float64(c.arrived) / took.Seconds()
	more, held := min(2*c.allowed, max(mostSmall, c.least)), now.Before(c.hold)
	switch paid := rate > crowdPays*c.best; {
	case c.allowed > c.good && !paid:
		c.allowed, c.best, c.hold = c.good, 0, now.Add(crowdHold)
	case held:
		c.best = max(c.best, rate)
	default:
		c.good, c.best, c.allowed = c.allowed, rate, more
	}
	c.arrived, c.since = 0, now
}

// refused has half as many go. Those that were under way with the one that failed may fail for the same reason.
func (c *crowd) refused(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.best == 0 && now.Before(c.hold.Add(crowdSpan-crowdHold)) {
		return
	}
	c.allowed = max(c.least, c.allowed/2)
	c.good, c.best, c.hold = c.allowed, 0, now.Add(crowdHold)
	c.arrived, c.since = 0, now
}
