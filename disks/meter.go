package disks

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is how long a disk has to answer. A healthy one needs microseconds, a busy network file system milliseconds.
const patience = time.Second

// HungError says that a disk does not answer.
type HungError struct {
	Path string
	For  time.Duration // since it was asked
	Age  time.Duration // of the last answer; negative: there never was one
}

func (e *HungError) Error() string {
	last := "it never did"
	if e.Age >= 0 {
		last = fmt.Sprintf("the last answer is %v old", e.Age.Round(time.Second))
	}
	return fmt.Sprintf("disk at %s has not answered for %v: %s", e.Path, e.For.Round(100*time.Millisecond), last)
}

// Meter asks disks for their space so that a disk that hangs never hangs the caller. It keeps each answer for a while,
// and never has more than one call under way for a path: one that is stuck in the kernel cannot be killed, and a second
// would only be stuck beside it. It is safe for concurrent use.
type Meter struct {
	maxAge time.Duration
	usage  func(path string) (Space, error)

	mu    sync.Mutex // guards what follows
	paths map[string]*gauge
}

// gauge is what the meter knows about one path. The meter's mutex guards it.
type gauge struct {
	last   Space
	lastAt time.Time // zero: never answered
	call   *call     // under way; nil: none
}

// call is one question to the kernel. Its answer may be read once done is closed.
type call struct {
	start time.Time
	done  chan struct{}
	space Space
	err   error
}

// NewMeter returns a meter that asks a disk again when its last answer is older than maxAge.
func NewMeter(maxAge time.Duration) *Meter {
	return &Meter{maxAge: maxAge, usage: Usage, paths: make(map[string]*gauge)}
}

// Space returns the space at path, no older than the meter allows. A disk that has not answered a second after it was
// asked gives a *HungError at once, beside the last answer that it gave (zero, if it never did), until it does answer.
func (m *Meter) Space(ctx context.Context, path string) (Space, error) {
	m.mu.Lock()
	g := m.paths[path]
	if g == nil {
		g = new(gauge)
		m.paths[path] = g
	}
	if !g.lastAt.IsZero() && time.Since(g.lastAt) <= m.maxAge {
		defer m.mu.Unlock()
		return g.last, nil
	}
	if g.call == nil {
		g.call = &call{start: time.Now(), done: make(chan struct{})}
		// Nobody waits for this one: it ends when the kernel lets it.
		go m.ask(path, g, g.call)
	}
	c, last, lastAt := g.call, g.last, g.lastAt
	m.mu.Unlock()

	timer := time.NewTimer(time.Until(c.start.Add(patience)))
	defer timer.Stop()
	select {
	case <-c.done:
		return c.space, c.err
	case <-ctx.Done():
		return last, fmt.Errorf("ask for the space at %s: %w", path, ctx.Err())
	case <-timer.C:
	}
	hung := &HungError{Path: path, For: time.Since(c.start), Age: -1}
	if !lastAt.IsZero() {
		hung.Age = time.Since(lastAt)
	}
	return last, hung
}

func (m *Meter) ask(path string, g *gauge, c *call) {
	c.space, c.err = m.usage(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.err == nil {
		g.last, g.lastAt = c.space, time.Now()
	}
	g.call = nil
	close(c.done)
}
