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
	reading map[whose]*reading
}

// whose they are: a process's, by its number and when it started.
type whose struct {
	pid     int
	started uint64
}

// reading is a read, whose end all wait for who want the same.
type reading struct {
	began time.Time
	ended chan struct{}
	line  string // then
}

// of is false where they cannot be read now. A read that does not come back is not tried again beside itself: each keeps a thread.
func (a *arguments) of(proc procfs, p process) (line string, read bool) {
	r := a.read(proc, whose{p.pid, p.started})
	late := time.NewTimer(time.Until(r.began.Add(longRead)))
	defer late.Stop()
	select {
	case <-r.ended:
		return r.line, true
	case <-late.C:
		return "", false
	}
}

// read begins a read, or returns the one that is under way.
func (a *arguments) read(proc procfs, of whose) *reading {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.reading[of]; r != nil {
		return r
	}
	if a.reading == nil {
		a.reading = map[whose]*reading{}
	}
	r := &reading{began: time.Now(), ended: make(chan struct{})}
	a.reading[of] = r
	go func() {
		defer close(r.ended)
		r.line = proc.commandLine(of.pid)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.reading, of)
	}()
	return r
}
