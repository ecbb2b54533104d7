package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// stallLimit ends a report when the coordinator takes nothing for so long: three answer limits, so that a busy one is not
// cut off.
const stallLimit = 15 * time.Second

var errStalled = errors.New("the coordinator takes nothing more")

// tell reports which blocks landed here and which are gone, until ctx ends. Answered beats wake it, so it asks nothing of a
// coordinator that is away. A full report replaces one that failed; before it tell says again why blocks are gone.
func (c *Client) tell(ctx context.Context) {
	trouble := streak{log: c.log, starts: "the blocks held here are not reported", ends: "the blocks held here are reported again"}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.outbox.wake:
		}
		full, queued := c.outbox.take()
		if !full && queued.count == 0 {
			continue
		}
		if full {
			await.Sleep(ctx, c.draw())
		}
		var err error
		if queued.count > 0 {
			err = c.report(ctx, false, queued)
		}
		if full && !passing(err) { // even after words were refused: they must not keep the full report back
			err = c.report(ctx, true, words{})
		}
		if ctx.Err() != nil {
			return
		}
		c.tellDone(err)
		if err == nil {
			failures = 0
			trouble.end()
			continue
		}
		failures++
		c.outbox.full(queued)
		if _, follows := api.LeaderOf(err); !follows { // otherwise the next beat finds the leader
			trouble.goesOn(err)
		}
		await.Sleep(ctx, backoff(failures))
	}
}

// passing reports whether a failed report may succeed in a moment. Then its words must be told first, because the full
// report does not say why blocks are gone.
func passing(err error) bool {
	return errors.Is(err, errStalled) || slices.Contains([]codes.Code{codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded}, status.Code(err))
}

// draw is how long to wait before a full report: a coordinator that asks this node for one asks all nodes.
func (c *Client) draw() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reportWithin <= 0 {
		return 0
	}
	return rand.N(c.reportWithin)
}

// report sends one report: all that Held yields, or words on some blocks.
func (c *Client) report(ctx context.Context, full bool, said words) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k, err := c.links.use()
	if err != nil {
		return err
	}
	defer c.links.done(k)
	stream, err := k.ReportBlocks(ctx)
	if err != nil {
		return fmt.Errorf("report blocks to %s: %w", k.address, err)
	}
	// Only the coordinator's part is timed: Held may read a slow disk for as long as that takes.
	timed := func(act func() error) error {
		stall := time.AfterFunc(stallLimit, func() { cancel(errStalled) })
		defer stall.Stop()
		err := act()
		if err != nil && context.Cause(ctx) == errStalled {
			return errStalled
		}
		return err
	}
	broken := c.broken.take(full, time.Now())
	unsaid, sequence := broken, c.sequence.next()
	send := func(r *api.ReportBlocksRequest) error {
		r.Node, r.Incarnation = c.cfg.Node, c.cfg.Incarnation
		r.Sequence, sequence = sequence, 0
		r.Broken, unsaid = unsaid, nil
		return timed(func() error { return stream.Send(r) })
	}
	if full {
		err = c.sendFull(send)
	} else {
		err = said.send(send)
	}
	if err == nil || err == io.EOF {
		err = timed(func() error { _, err := stream.CloseAndRecv(); return err })
	}
	if err != nil {
		c.broken.putBack(broken)
		return fmt.Errorf("report blocks to %s: %w", k.address, err)
	}
	c.broken.arrived(broken, time.Now())
	return nil
}

func (c *Client) sendFull(send func(*api.ReportBlocksRequest) error) error {
	if err := send(&api.ReportBlocksRequest{Full: true}); err != nil || c.cfg.Held == nil {
		return err
	}
	var landed heldRuns
	return inBatches("list what is held", c.cfg.Held(), landed.add, func() error { return send(landed.take()) })
}

// Goodbye ends a decommission: it sends the summary first, then the entries of the manifest while it reads them; each is
// valid until the next. The coordinator keeps nothing of a manifest that does not arrive whole.
func (c *Client) Goodbye(ctx context.Context, summary *api.ManifestSummary, entries iter.Seq2[*api.ManifestEntry, error]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a manifest that cannot be read to its end must not look like a whole one
	summary = c.own(summary)
	return c.call(ctx, "say goodbye", func(m *link) error {
		stream, err := m.Goodbye(ctx)
		if err != nil {
			return err
		}
		if err = stream.Send(&api.GoodbyeRequest{Summary: summary}); err == nil {
			var batch manifestRuns
			err = inBatches("read the manifest", entries, batch.add, func() error { return stream.Send(batch.take()) })
		}
		if err != nil && err != io.EOF {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	})
}

// own returns the summary with this node's name in it.
func (c *Client) own(summary *api.ManifestSummary) *api.ManifestSummary {
	summary = proto.CloneOf(summary)
	if summary == nil {
		summary = &api.ManifestSummary{}
	}
	summary.Node, summary.Incarnation = c.cfg.Node, c.cfg.Incarnation
	return summary
}
