package migration

import (
	"context"
	"iter"
	"path/filepath"
	"sync"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// questions are blocks to ask somebody about, in a spool: memory does not grow with their number. Scans add them, one goroutine asks.
type questions struct {
	mu     sync.Mutex // guards what follows
	spool  plan.Spool
	closed bool          // nobody asks any more
	sealed bool          // none are added any more
	ready  chan struct{} // has one when there is something to ask about, or the last was added
	open   int           // blocks that were added, and about which nobody has answered
	fewer  await.News    // open falls
}

func newQuestions(dir, of string) questions {
	return questions{spool: plan.Spool{Path: filepath.Join(dir, of+".spool")}, ready: make(chan struct{}, 1)}
}

// add makes a block be asked about, and reports false if it will not be. If the disk takes no more, this block is the last.
func (q *questions) add(b inventory.Block) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.sealed {
		return false
	}
	q.sealed = q.spool.Push(b) != nil
	q.open++
	if q.sealed || q.spool.Left.Blocks >= reading.MostAsked {
		await.Mark(q.ready)
	}
	return true
}

// flush makes all blocks that were added so far be asked about now, though they may not fill a question.
func (q *questions) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	await.Mark(q.ready)
}

func (q *questions) seal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealed = true
	await.Mark(q.ready)
}

// take returns the next to ask about, none if there are none now, and whether some may follow.
func (q *questions) take() (batch []inventory.Block, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.spool.Left.Blocks > 0 && len(batch) < reading.MostAsked {
		b, err := q.spool.Pop()
		if err != nil {
			return batch, false
		}
		batch = append(batch, b)
	}
	return batch, len(batch) > 0 || !q.sealed
}

// batches yields what is to be asked in one question each, as it is added, until it is sealed or ctx ends.
func (q *questions) batches(ctx context.Context) iter.Seq[[]inventory.Block] {
	return func(yield func([]inventory.Block) bool) {
		for ctx.Err() == nil {
			batch, more := q.take()
			switch {
			case len(batch) > 0:
				if !yield(batch) {
					return
				}
				q.answered(len(batch))
			case !more:
				return
			default:
				select {
				case <-q.ready:
				case <-ctx.Done():
				}
			}
		}
	}
}

func (q *questions) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.less(q.open)
	_ = q.spool.Close() // nothing in it is of use any more
}

func (q *questions) answered(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.less(n)
}

func (q *questions) less(n int) {
	q.open -= min(n, q.open)
	q.fewer.Tell()
}

// settled waits until all that was added is answered, and is false when ctx ends first.
func (q *questions) settled(ctx context.Context) bool {
	for {
		q.mu.Lock()
		open, fewer := q.open, q.fewer.Next()
		q.mu.Unlock()
		if open == 0 {
			return true
		}
		select {
		case <-fewer:
		case <-ctx.Done():
			return false
		}
	}
}
