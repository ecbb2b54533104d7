package workloads

import (
	"sync"
	"time"
)

// longRead is how long the arguments of a process may take to be read: some microseconds else.
const longRead = 200 * time.Millisecond

// arguments reads those of processes. One that is stuck in the kernel amid a change of its memory, for the disk of a mapped file hangs, lets
// nobody read its own, as whoever has seen ps(1) hang knows: the word to all others must not wait for it. The zero value is ready.
type arguments struct {
	mu      sync.Mutex
	reading map[int]uint64 // by number: when the process started whose are being read
}

// of is false where they cannot be read now. A read that does not come back is not tried again beside itself: each keeps a thread.
func (a *arguments) of(proc procfs, p process) (line string, read bool) {
	a.mu.Lock()
	if a.reading == nil {
		a.reading = map[int]uint64{}
	}
	_, stuck := a.reading[p.pid]
	a.reading[p.pid] = p.started
	a.mu.Unlock()
	if stuck {
		return "", false
	}
	lines := make(chan string, 1)
	go func() {
		line := proc.commandLine(p.pid)
		a.mu.Lock()
		delete(a.reading, p.pid)
		a.mu.Unlock()
		lines <- line
	}()
	late := time.NewTimer(longRead)
	defer late.Stop()
	select {
	case line = <-lines:
		return line, true
	case <-late.C:
		return "", false
	}
}
