package migration

import (
	"sync"
	"time"
)

const (
	// smallUpload is the largest block that costs the fallback its latency and little else.
	smallUpload = 128 << 10
	// mostSmall bounds the small blocks that are uploaded at once, and so the memory for them: 32 MiB twice.
	mostSmall = 256
	// crowdSpan is how long arrivals are counted at the least before the number of uploads changes: the most are at work a second or
	// two after the first.
	crowdSpan = 250 * time.Millisecond
	// crowdPays is how many times as many blocks a second must arrive when twice as many are under way.
	crowdPays = 1.2
	// crowdHold is how long more are not tried once that did not pay, or something was refused.
	crowdHold = 5 * time.Second
)

// crowd decides how many blocks go to the fallback at once. A storage takes as long for a small block as for a medium one, and most
// storages take hundreds side by side. So the number is doubled for as long as more arrive for that, and halved when one is refused.
type crowd struct {
	mu      sync.Mutex
	least   int       // uploads for blocks of any size
	allowed int       // uploads at most, with those for small blocks
	helping int       // uploads for small blocks now, beside the least
	arrived int       // small blocks, since then
	since   time.Time // zero: nothing has arrived
	good    int       // the allowed with which it went best
	best    float64   // arrivals per second with it; 0: not known
	hold    time.Time // allowed does not rise before
}

func newCrowd(least int) *crowd { return &crowd{least: least, allowed: least, good: least} }

// join reports whether one more upload may help. It leaves when it ends.
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

// full reports whether an upload that helps should end.
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

// refused halves the number of uploads. Uploads that were under way with the one that failed may fail for the same reason: what fails
// within crowdSpan counts once.
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
