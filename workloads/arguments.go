package workloads

import (
	"sync"
	"time"
)

// longRead is how long reading the arguments of a process may take; normally it takes some microseconds.
const longRead = 200 * time.Millisecond

// arguments reads the command lines of processes. The kernel lets nobody read that of a process that is stuck in the middle
// of a change of its memory, because the disk of a mapped file hangs; ps(1) hangs there, too. Telling all other processes
// must not wait for it. The zero value is ready.
type arguments struct {
	mu      sync.Mutex
	reading map[whose]*reading
}

// whose identifies a process, by its number and when it started.
type whose struct {
	pid     int
	started uint64
}

// reading is a read under way; all callers that want the same command line wait for its end.
type reading struct {
	began time.Time
	ended chan struct{}
	line  string // once ended is closed
}

// of returns the command line of a process; false: it cannot be read now. While a read of a process does not return no
// second one is begun, since each keeps a thread.
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
