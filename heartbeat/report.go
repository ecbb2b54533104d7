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

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// A batch is far below the 4 MiB that a gRPC server accepts in one message, whatever the names' lengths.
	batchItems = 512
	batchBytes = 256 << 10

	// stallLimit ends a report whose coordinator takes nothing more: three answer limits, so that a busy one is not cut off.
	stallLimit = 15 * time.Second
)

var errStalled = errors.New("the coordinator takes nothing more")

// tell reports what landed here and what went, until ctx ends. It is woken by answered beats, so it asks nothing of a
// coordinator that is away. A report that fails is replaced by a full one.
func (c *Client) tell(ctx context.Context) {
	trouble := streak{log: c.log, starts: "the blocks held here are not reported", ends: "the blocks held here are reported again"}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.outbox.wake:
		}
		full, words := c.outbox.take()
		if !full && len(words) == 0 {
			continue
		}
		if full {
			sleep(ctx, c.draw(), nil)
		}
		err := c.report(ctx, full, words)
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
		c.outbox.full()
		if _, follows := api.LeaderOf(err); !follows { // else the next beat finds the leader
			trouble.goesOn(err)
		}
		sleep(ctx, backoff(failures), nil)
	}
}

// draw is how long to wait before a full report: the coordinator that asked for it asked everybody.
func (c *Client) draw() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reportWithin <= 0 {
		return 0
	}
	return rand.N(c.reportWithin)
}

// report sends one report: all that Held yields, or words on some blocks.
func (c *Client) report(ctx context.Context, full bool, words []word) error {
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
	// Held may read a slow disk for as long as it likes; only what the coordinator takes is timed.
	timed := func(act func() error) error {
		stall := time.AfterFunc(stallLimit, func() { cancel(errStalled) })
		defer stall.Stop()
		err := act()
		if err != nil && context.Cause(ctx) == errStalled {
			return errStalled
		}
		return err
	}
	broken := c.broken.take()
	unsaid := broken
	send := func(r *api.ReportBlocksRequest) error {
		r.Node, r.Incarnation = c.cfg.Node, c.cfg.Incarnation
		r.Broken, unsaid = unsaid, nil
		return timed(func() error { return stream.Send(r) })
	}
	if full {
		err = c.sendFull(send)
	} else {
		err = sendWords(words, send)
	}
	if err == nil || err == io.EOF {
		err = timed(func() error { _, err := stream.CloseAndRecv(); return err })
	}
	if err != nil {
		c.broken.putBack(broken)
		return fmt.Errorf("report blocks to %s: %w", k.address, err)
	}
	return nil
}

func (c *Client) sendFull(send func(*api.ReportBlocksRequest) error) error {
	if err := send(&api.ReportBlocksRequest{Full: true}); err != nil || c.cfg.Held == nil {
		return err
	}
	return inBatches("list what is held", c.cfg.Held(), func(landed []*api.HeldBlock) error {
		return send(&api.ReportBlocksRequest{Landed: landed})
	})
}

// sendWords sends words in their order. A message tells first what landed and then what is gone, so it holds only one of
// them: a block may have come, gone and come again.
func sendWords(words []word, send func(*api.ReportBlocksRequest) error) error {
	for len(words) > 0 {
		gone := words[0].held == nil
		n := slices.IndexFunc(words, func(w word) bool { return (w.held == nil) != gone })
		if n < 0 {
			n = len(words)
		}
		if err := sendAlike(words[:n], send); err != nil {
			return err
		}
		words = words[n:]
	}
	return nil
}

func sendAlike(words []word, send func(*api.ReportBlocksRequest) error) error {
	r, size := &api.ReportBlocksRequest{}, 0
	for i, w := range words {
		if w.held != nil {
			if r.Landed == nil {
				r.Landed = make([]*api.HeldBlock, 0, min(len(words)-i, batchItems))
			}
			r.Landed = append(r.Landed, w.held)
			size += len(w.id) + len(w.held.From)
		} else {
			r.Gone = append(r.Gone, w.id)
			size += len(w.id)
		}
		if i+1 < len(words) && len(r.Landed)+len(r.Gone) < batchItems && size < batchBytes {
			continue
		}
		if err := send(r); err != nil {
			return err
		}
		r, size = &api.ReportBlocksRequest{}, 0
	}
	return nil
}

// inBatches gathers what items yields into batches and sends each; its memory is one batch. The slice is reused: gRPC has
// encoded a message when Send returns. An io.EOF that comes back bare is Send's way to say that the stream ended and
// that its reply says why; what items yields is always wrapped, so a manifest cut short is never mistaken for that.
func inBatches[T proto.Message](what string, items iter.Seq2[T, error], send func([]T) error) error {
	var batch []T
	size := 0
	for item, err := range items {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		batch, size = append(batch, item), size+proto.Size(item)
		if len(batch) < batchItems && size < batchBytes {
			continue
		}
		if err := send(batch); err != nil {
			return err
		}
		clear(batch)
		batch, size = batch[:0], 0
	}
	if len(batch) == 0 {
		return nil
	}
	return send(batch)
}

// Goodbye ends a decommission: the summary goes first, then the entries of the manifest, read as they are sent. The
// coordinator keeps nothing of a manifest that did not arrive whole.
func (c *Client) Goodbye(ctx context.Context, summary *api.ManifestSummary, entries iter.Seq2[*api.ManifestEntry, error]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a manifest that cannot be read to its end must not look like a whole one
	return c.call(ctx, "say goodbye", func(m api.MembershipClient) error {
		stream, err := m.Goodbye(ctx)
		if err != nil {
			return err
		}
		if err := sendManifest(stream, c.own(summary), entries); err != nil && err != io.EOF {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	})
}

func sendManifest(stream grpc.ClientStreamingClient[api.GoodbyeRequest, api.GoodbyeReply], summary *api.ManifestSummary, entries iter.Seq2[*api.ManifestEntry, error]) error {
	if err := stream.Send(&api.GoodbyeRequest{Summary: summary}); err != nil {
		return err
	}
	return inBatches("read the manifest", entries, func(batch []*api.ManifestEntry) error {
		return stream.Send(&api.GoodbyeRequest{Entries: batch})
	})
}

// own is the summary with this node's name in it.
func (c *Client) own(summary *api.ManifestSummary) *api.ManifestSummary {
	summary = proto.CloneOf(summary)
	if summary == nil {
		summary = &api.ManifestSummary{}
	}
	summary.Node, summary.Incarnation = c.cfg.Node, c.cfg.Incarnation
	return summary
}
