package heartbeat

import (
	"fmt"
	"iter"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// A batch fits into 32 KiB, above which gRPC's buffers are of 1 MiB (grpc/mem, defaultBufferPoolSizes), and is far below
	// the 4 MiB and the blocks that a coordinator takes in one message.
	batchItems = 1024
	batchBytes = 28 << 10
)

// Blocks travel as runs, of which a coordinator makes less work than of thousands of small messages.

// batch counts what a message holds.
type batch struct{ items, bytes int }

// add says whether the message is full with one more.
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

// inBatches hands each item to add, and sends what was gathered when that says that a message is full, and at the end: the
// memory is one message. An io.EOF that comes back bare is send's way to say that the stream ended and that its reply says
// why; what items yields is always wrapped, so a manifest cut short is never mistaken for that.
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
