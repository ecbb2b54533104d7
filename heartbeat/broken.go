package heartbeat

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

const (
	// mostBroken bounds the broken blocks that wait to be reported. Of any beyond that only Gone is told.
	mostBroken = 1024
	// brokenAnew is for how long a full report repeats a broken block that was reported before. The leader that asks for a
	// full report may not be the one that heard it, and a leader that fell before the next beat of the block's former node
	// has told that node nothing.
	brokenAnew = time.Minute
)

// Broken queues word that blocks no longer rest here because they were broken: the node that each came from may still be
// there to carry it again. Call it once Held no longer yields them. The blocks must not change afterwards.
func (c *Client) Broken(blocks ...*api.HeldBlock) {
	c.broken.add(blocks)
	for _, b := range blocks {
		c.Gone("it was broken", b.GetId())
	}
	c.Nudge() // the node that could send it again may have little time
}

// Again returns the blocks that this node is asked to carry again, as the newest reply had them, and what is closed when
// they are others.
func (c *Client) Again() (blocks []*api.BrokenBlock, changed <-chan struct{}) { return c.again.list() }

// brokenWords are broken blocks that wait for the next report. They go in its first message, since later messages may say
// anew who holds a block.
type brokenWords struct {
	mu     sync.Mutex // guards what follows
	blocks []*api.HeldBlock
	told   []toldBroken // of late, in order
}

type toldBroken struct {
	*api.HeldBlock
	at time.Time
}

func (w *brokenWords) add(blocks []*api.HeldBlock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks = append(w.blocks, blocks[:min(len(blocks), max(0, mostBroken-len(w.blocks)))]...)
}

// take returns the blocks for one message. A full report begins with those that were told within brokenAnew.
func (w *brokenWords) take(full bool, now time.Time) []*api.HeldBlock {
	w.mu.Lock()
	defer w.mu.Unlock()
	if full {
		var anew []*api.HeldBlock
		for _, b := range w.told {
			if now.Sub(b.at) <= brokenAnew {
				anew = append(anew, b.HeldBlock)
			}
		}
		w.blocks, w.told = append(anew, w.blocks...), nil
	}
	n := min(len(w.blocks), batchItems)
	taken := slices.Clone(w.blocks[:n])
	w.blocks = slices.Delete(w.blocks, 0, n)
	return taken
}

// arrived notes the blocks that the coordinator was told of.
func (w *brokenWords) arrived(blocks []*api.HeldBlock, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = slices.DeleteFunc(w.told, func(b toldBroken) bool { return now.Sub(b.at) > brokenAnew })
	for _, b := range blocks {
		w.told = append(w.told, toldBroken{b, now})
	}
	w.told = slices.Delete(w.told, 0, max(0, len(w.told)-mostBroken))
}

// putBack queues the blocks of a report that did not arrive.
func (w *brokenWords) putBack(blocks []*api.HeldBlock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks = append(blocks, w.blocks...)
}

// agains are the blocks that the newest reply asks this node to carry again.
type agains struct {
	mu     sync.Mutex // guards blocks
	blocks []*api.BrokenBlock

	changed await.News
}

func (a *agains) hear(blocks []*api.BrokenBlock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := slices.EqualFunc(a.blocks, blocks, func(x, y *api.BrokenBlock) bool {
		return x.GetId() == y.GetId() && x.GetPeer() == y.GetPeer() && x.GetHeir() == y.GetHeir()
	})
	if !same {
		a.blocks = blocks
		a.changed.Tell()
	}
}

func (a *agains) list() ([]*api.BrokenBlock, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blocks, a.changed.Next()
}
