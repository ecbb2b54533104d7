package main

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// mostUnread is what of a log is kept while nobody takes it: some five thousand lines.
	mostUnread = 1 << 20
	// lastLines is how long the lines of a daemon that ends may take.
	lastLines = time.Second
)

// unhurried writes a log behind who logs. Whoever reads it may stop reading, as the journal does whose disk hangs, and a container's
// runtime: then a line would hold up for ever who wants to say it, and all others that log. Lines beyond mostUnread are lost, which is
// said once somebody reads again.
type unhurried struct {
	to    io.Writer
	more  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	lines  []byte
	lost   int // lines, since it was last said
	closed bool
}

func newUnhurried(to io.Writer) *unhurried {
	return &unhurried{to: to, more: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Write takes a line, and never waits.
func (u *unhurried) Write(line []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.lines)+len(line) > mostUnread {
		u.lost++
	} else {
		u.lines = append(u.lines, line...)
	}
	u.nudge()
	return len(line), nil
}

func (u *unhurried) nudge() {
	select {
	case u.more <- struct{}{}:
	default:
	}
}

// run writes what it was given, until it is closed.
func (u *unhurried) run(log *slog.Logger) {
	defer close(u.ended)
	for range u.more {
		u.mu.Lock()
		lines, lost, closed := u.lines, u.lost, u.closed
		u.lines, u.lost = nil, 0
		u.mu.Unlock()
		if len(lines) > 0 {
			_, _ = u.to.Write(lines) // there is nobody else to tell
		}
		switch {
		case lost > 0:
			log.Warn("lines are missing here: nobody took the log", "lines", lost)
		case closed:
			return
		}
	}
}

// close has what is left written, if somebody takes it.
func (u *unhurried) close() {
	u.mu.Lock()
	u.closed = true
	u.nudge()
	u.mu.Unlock()
	select {
	case <-u.ended:
	case <-time.After(lastLines):
	}
}
