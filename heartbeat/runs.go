package heartbeat

import (
	"fmt"
	"iter"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// A batch fits into 32 KiB, above which gRPC's buffers are of 1 MiB (grpc/mem, defaultBufferPoolSizes). It is far below
	// the 4 MiB and the number of blocks that a coordinator takes in one message.
	batchItems = 1024
	batchBytes = 28 << 10
)

// Blocks travel as runs, which are less work for a coordinator than thousands of small messages.

// batch counts what a message holds.
type batch struct{ items, bytes int }

// add counts one more item, and reports whether the message is full with it.
func (b *batch) add(bytes int) (full bool) {
	b.items++
	b.bytes += bytes
	return b.items >= batchItems || b.bytes >= batchBytes
}

// heldRuns gathers landed blocks.
type heldRuns struct {
	runs []*api.HeldRun
	size batch
}

func (h *heldRuns) add(b *api.HeldBlock) (full bool) {
	last := len(h.runs) - 1
	if last < 0 || h.runs[last].From != b.GetFrom() || !h.runs[last].Blocks.Add(b.GetId(), b.GetBytes()) {
		h.runs = append(h.runs, &api.HeldRun{From: b.GetFrom(), Blocks: api.NewBlockRun(b.GetId(), b.GetBytes())})
	}
	return h.size.add(len(b.GetId()) + len(b.GetFrom()))
}

// take empties it into a message.
func (h *heldRuns) take() *api.ReportBlocksRequest {
	runs := h.runs
	*h = heldRuns{}
	return &api.ReportBlocksRequest{Runs: runs}
}

// manifestRuns gathers entries of a manifest.
type manifestRuns struct {
	runs []*api.ManifestRun
	size batch
}

func (m *manifestRuns) add(e *api.ManifestEntry) (full bool) {
	last := len(m.runs) - 1
	if last < 0 || !follows(m.runs[last], e) || !m.runs[last].Blocks.Add(e.GetId(), e.GetBytes()) {
		m.runs = append(m.runs, &api.ManifestRun{
			Outcome: e.GetOutcome(), Peer: e.GetPeer(), Reason: e.GetReason(), Blocks: api.NewBlockRun(e.GetId(), e.GetBytes()),
		})
	}
	return m.size.add(len(e.GetId()) + len(e.GetOutcome()) + len(e.GetPeer()) + len(e.GetReason()))
}

func follows(r *api.ManifestRun, e *api.ManifestEntry) bool {
	return r.Outcome == e.GetOutcome() && r.Peer == e.GetPeer() && r.Reason == e.GetReason()
}

// take empties it into a message.
func (m *manifestRuns) take() *api.GoodbyeRequest {
	runs := m.runs
	*m = manifestRuns{}
	return &api.GoodbyeRequest{Runs: runs}
}

// inBatches hands each item to add, and calls send when add says that the message is full, and at the end. So one message is
// in memory at a time. A bare io.EOF comes from send: the stream ended, and its reply says why. Errors of items are wrapped,
// so that a manifest cut short is never taken for that.
func inBatches[T any](what string, items iter.Seq2[T, error], add func(T) (full bool), send func() error) error {
	some := false
	for item, err := range items {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		some = true
		if !add(item) {
			continue
		}
		if err := send(); err != nil {
			return err
		}
		some = false
	}
	if !some {
		return nil
	}
	return send()
}
