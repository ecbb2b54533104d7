package preemption

import (
	"context"
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/await"
)

// queue hands notices from the goroutines that hear them to the one that acts on them. It keeps only the newest word about
// each notice, so it is never longer than there are notices, even if nobody pops for long.
type queue struct {
	ready chan struct{} // holds one token whenever waiting is not empty

	mu      sync.Mutex // guards waiting
	waiting []Notice
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

func (q *queue) push(n Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(slices.DeleteFunc(q.waiting, n.same), n)
	await.Mark(q.ready)
}

// pop blocks until something waits or ctx ends.
func (q *queue) pop(ctx context.Context) (Notice, error) {
	for {
		select {
		case <-ctx.Done():
			return Notice{}, ctx.Err()
		case <-q.ready:
		}
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.mu.Unlock()
			continue
		}
		n := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		if len(q.waiting) > 0 {
			await.Mark(q.ready)
		}
		q.mu.Unlock()
		return n, nil
	}
}
