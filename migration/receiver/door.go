package receiver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Admission says whether a node takes blocks now, and what it tells the senders.
type Admission struct {
	Refused string        // why nothing is taken; "": blocks are taken
	Retry   time.Duration // when the sender may ask again
	Advised bool          // the node may leave itself: it takes what no other node takes
}

// door lets streams and blocks in for as long as Admit does, and counts what it owes them.
type door struct {
	cfg     *Config
	budget  Budget
	serving sync.WaitGroup // streams

	mu      sync.Mutex
	stopped bool       // no stream is let in any more
	owing   int        // blocks that were accepted whole and have no receipt yet
	settled await.News // owing has come down to 0
}

// enter counts a stream in, or says why not.
func (d *door) enter(h wire.Hello) (advised bool, no *wire.Refuse) {
	is := d.cfg.Admit(h.Advised)
	if is.Refused != "" {
		return false, &wire.Refuse{Reason: is.Refused, RetryMillis: is.Retry.Milliseconds(), Stays: true}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false, &wire.Refuse{Reason: "the agent is stopping", RetryMillis: 5000}
	}
	if err := d.budget.Enter(h.Node, h.Alone); err != nil {
		return false, &wire.Refuse{Reason: err.Error(), RetryMillis: RetryBusy.Milliseconds()}
	}
	d.serving.Add(1)
	return is.Advised, nil
}

func (d *door) leave(node string) {
	d.budget.Leave(node)
	d.serving.Done()
}

// RetryBusy is how long a sender waits that found all streams taken: about as long as a few blocks take to send.
const RetryBusy = time.Second

// stop lets no further stream in.
func (d *door) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
}

// leaving reports whether this node takes no blocks: it may have to send on what it has, from where it lies.
func (d *door) leaving() bool {
	return d.cfg.Admit(false).Refused != ""
}

// accept counts a complete block as owed a verdict until answered is called, or returns an error if blocks are not
// taken any more. It counts before it asks Admit: a caller that makes Admit refuse and then calls Settle has waited for
// every block that was accepted.
func (d *door) accept(advised bool, bytes int64) error {
	d.mu.Lock()
	d.owing++
	d.mu.Unlock()
	err := d.turnAway(advised, bytes)
	if err != nil {
		d.answered(1)
	}
	return err
}

// turnAway returns what a sender is told while Admit refuses: that this node is full, for then the sender tries another
// peer at once.
func (d *door) turnAway(advised bool, bytes int64) error {
	if is := d.cfg.Admit(advised); is.Refused != "" {
		return fmt.Errorf("%s: %w", is.Refused, &FullError{NeedBytes: bytes})
	}
	return nil
}

func (d *door) answered(blocks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owing -= blocks; blocks > 0 && d.owing == 0 {
		d.settled.Tell()
	}
}

// Settle waits, while ctx lasts, until every accepted block has its verdict. If Admit refuses by then, no further block
// will land.
func (d *door) Settle(ctx context.Context) {
	for ctx.Err() == nil {
		d.mu.Lock()
		owing, settled := d.owing, d.settled.Next()
		d.mu.Unlock()
		if owing == 0 {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
}

// owes reports whether an accepted block has no verdict yet.
func (d *door) owes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owing > 0
}

// FullError says that a node has no room for a block.
type FullError struct{ NeedBytes, HasBytes int64 }

func (e *FullError) Error() string {
	need, has := config.Bytes(e.NeedBytes).Rough(), config.Bytes(e.HasBytes).Rough()
	if need == has { // they differ by some bytes only
		need, has = fmt.Sprintf("%d bytes", e.NeedBytes), fmt.Sprint(e.HasBytes)
	}
	return "full: need " + need + ", has " + has
}
