package durable

import (
	"errors"
	"sync"
	"time"
)

// Beside writes to one disk, one errand after the other, on a goroutine of its own: a disk may hang, and nothing ends a write to a hung
// disk. Do waits for its errand no longer than Patience, and not at all while the disk is known to hang. An errand that was not waited for
// stays in the queue, and is done in its turn once the disk answers.
type Beside struct {
	// Known reports whether the disk is known to hang. Then no errand is begun: a process that waits in the kernel for a disk cannot
	// quite die before the disk answers. Nil: nobody knows.
	Known func() bool
	// Late is told how an errand ended that nobody waited for any more. Nil: nobody is.
	Late func(what string, err error)

	mu    sync.Mutex
	queue []*errand
	since time.Time // when the turn of the first in queue came
}

// Patience is how long a disk may take to write and sync a page before it is taken to hang. A sync of a busy cloud volume
// takes a second at the worst, and the shortest notices leave thirty.
const Patience = 3 * time.Second

// knownPause is how often Known is asked again whether the disk still hangs.
const knownPause = 500 * time.Millisecond

// ErrHangs says that Do did not wait for its errand, which is still in the queue.
var ErrHangs = errors.New("the disk hangs: it is written once that answers")

type errand struct {
	what  string
	do    func() error
	begun bool
	left  bool // nobody waits for it
	done  chan struct{}
	err   error
}

// Do runs do in its turn, after the errands that came before. It takes the place of an errand of the same name that has not begun: only
// the newest version of a page needs to be written.
func (b *Beside) Do(what string, do func() error) error {
	b.mu.Lock()
	e := b.waiting(what)
	if e != nil {
		e.do = do
	} else {
		e = &errand{what: what, do: do, done: make(chan struct{})}
		b.queue = append(b.queue, e)
		if len(b.queue) == 1 {
			b.since = time.Now()
			go b.work()
		}
	}
	patience := Patience - time.Since(b.since)
	b.mu.Unlock()
	if b.known() {
		patience = 0
	}
	if patience > 0 {
		select {
		case <-e.done:
			return e.err
		case <-time.After(patience):
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-e.done:
		return e.err
	default:
		e.left = true
		return ErrHangs
	}
}

// waiting returns the errand of that name that has not begun; nil: there is none.
func (b *Beside) waiting(what string) *errand {
	for _, e := range b.queue {
		if e.what == what && !e.begun {
			return e
		}
	}
	return nil
}

// Takes returns how long the disk has been at the first errand in the queue; zero: the queue is empty.
func (b *Beside) Takes() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return 0
	}
	return time.Since(b.since)
}

func (b *Beside) known() bool { return b.Known != nil && b.Known() }

func (b *Beside) work() {
	for more := true; more; {
		for b.known() {
			time.Sleep(knownPause)
		}
		b.mu.Lock()
		e := b.queue[0]
		e.begun = true
		b.mu.Unlock()
		err := e.do()
		b.mu.Lock()
		e.err = err
		close(e.done)
		b.queue, b.since = b.queue[1:], time.Now()
		more = len(b.queue) > 0
		left := e.left
		b.mu.Unlock()
		if left && b.Late != nil {
			b.Late(e.what, err)
		}
	}
}
