package main

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

const (
	// mostUnread is how many bytes of a log are kept while nobody reads it: some five thousand lines.
	mostUnread = 1 << 20
	// lastLines is how long a daemon that ends waits for its last lines to be written.
	lastLines = time.Second
)

// unhurried writes a log in the background, so that logging never blocks. The reader of the log may stop reading: journald when its disk
// hangs, or a container's runtime. A blocking write would then stop the goroutine that logs, and every other that logs after it, for ever.
// Lines beyond mostUnread are dropped; a line with their number follows once the reader reads again.
type unhurried struct {
	to    io.Writer
	more  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	lines  []byte
	lost   int // lines dropped since the last line that said so
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
	await.Mark(u.more)
	return len(line), nil
}

// run writes the lines that Write took, until close. log is of the same reader, and not behind Write: a line that says how many others are
// missing comes where they are, and is never one of them.
func (u *unhurried) run(log *slog.Logger) {
	defer close(u.ended)
	for range u.more {
		u.mu.Lock()
		lines, lost, closed := u.lines, u.lost, u.closed
		u.lines, u.lost = nil, 0
		u.mu.Unlock()
		if len(lines) > 0 {
			_, _ = u.to.Write(lines) // there is no other place to report an error
		}
		if lost > 0 {
			log.Error("lines are missing here: nobody took the log", "lines", lost)
		}
		if closed {
			return
		}
	}
}

// close waits up to lastLines for the remaining lines to be written.
func (u *unhurried) close() {
	u.mu.Lock()
	u.closed = true
	await.Mark(u.more)
	u.mu.Unlock()
	select {
	case <-u.ended:
	case <-time.After(lastLines):
	}
}
