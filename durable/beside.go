package durable

import (
	"errors"
	"sync"
	"time"
)

// Beside writes to one disk, one thing after the other, on a goroutine of its own: a disk may hang, and nothing ends a write to one that
// does. Whoever asks for something waits for it no longer than Patience, and not at all while the disk is known to hang. It is done all the
// same, in its turn, once the disk answers.
type Beside struct {
	// Known says that the disk is known to hang: then nothing is begun, for a process that waits for a disk in the kernel cannot quite
	// die before it. Nil: nobody knows.
	Known func() bool
	// Late is told how a thing ended that nobody waited for any more. Nil: nobody is.
	Late func(what string, err error)

	mu    sync.Mutex
	queue []*errand
	since time.Time // when the first was begun
}

// Patience is how long a disk may take over a page that is written and synced before it is taken to hang. A sync of a busy cloud volume
// takes a second at the worst, and the shortest notices leave thirty.
const Patience = 3 * time.Second

// knownPause is how often it is looked whether a disk that is known to hang still does.
const knownPause = 500 * time.Millisecond

// ErrHangs says that a thing is not on disk yet.
var ErrHangs = errors.New("the disk hangs: it is written once that answers")

type errand struct {
	what  string
	do    func() error
	begun bool
	left  bool // nobody waits for it
	done  chan struct{}
	err   error
}

// Do does something, and what was asked for before it first. What waits for its turn is not done where another of the same name follows:
// of a page that is written anew the newest counts.
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

// waiting returns the errand whose place one of that name takes; nil: there is none.
func (b *Beside) waiting(what string) *errand {
	for _, e := range b.queue {
		if e.what == what && !e.begun {
			return e
		}
	}
	return nil
}

// Takes is how long the disk has been at what it does now; zero: at nothing.
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
