// Package await holds the ways in which the other packages wait: for a time, for a word that something has changed, or for what is done
// beside them. Several goroutines may use everything in it.
package await

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d, and returns false when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 { // no timer for that: two that are due at once, in one bubble of synctest, crash Go 1.26's race detector
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// News tells all who wait that something has changed. Its zero value is ready.
type News struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // nil: nobody has asked for it since the last Tell
}

// Next returns what the next Tell closes. Who asks before looking at what may change misses no change.
func (n *News) Next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Tell wakes all who wait.
func (n *News) Tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Mark fills a channel that has room for one, unless it is full already.
func Mark(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Beside runs do, which may hang, on a goroutine of its own. done is closed once do has returned.
func Beside(do func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	return ended
}
