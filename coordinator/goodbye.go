package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Goodbye ends a decommission. The manifest is on the disk before the log refers to it, and the log entry is on the disk before the
// node gets its answer, at which it may go.
func (s *membership) Goodbye(stream grpc.ClientStreamingServer[api.GoodbyeRequest, api.GoodbyeReply]) error {
	r, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return checkSummary(nil)
	}
	if err != nil {
		return err
	}
	summary := r.Summary
	if err := checkSummary(summary); err != nil {
		return err
	}
	name, err := speaker(stream.Context(), summary.Node)
	if err != nil {
		return err
	}
	if err := s.registered(name, summary.Incarnation); err != nil {
		return err
	}
	w, err := s.accounts.files.begin(name, summary)
	if err != nil {
		return s.unwritten(name, err)
	}
	defer w.abort()
	for ; err == nil; r, err = stream.Recv() {
		if err := checkManifest(r); err != nil {
			return err
		}
		lost, err := w.take(r)
		if err != nil {
			return s.unwritten(name, err)
		}
		s.locations.broken.settle(name, lost...)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if err := w.commit(); err != nil {
		return s.unwritten(name, err)
	}
	if err := s.accounts.share(stream.Context(), w.name); err != nil {
		return s.unwritten(name, err)
	}
	if err := s.end(name, summary, w); err != nil {
		return err
	}
	return stream.SendAndClose(&api.GoodbyeReply{})
}

// entriesOf yields the entries of a message. An entry is valid until the next one.
func entriesOf(r *api.GoodbyeRequest) iter.Seq[*api.ManifestEntry] {
	return func(yield func(*api.ManifestEntry) bool) {
		for _, e := range r.Entries {
			if !yield(e) {
				return
			}
		}
		for _, run := range r.Runs {
			e := &api.ManifestEntry{Outcome: run.Outcome, Peer: run.Peer, Reason: run.Reason}
			for e.Id, e.Bytes = range run.Blocks.IDs() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (s *membership) end(name string, summary *api.ManifestSummary, w *manifestWriter) error {
	says := fmt.Sprintf("%d moved, %d lost, %d skipped", summary.GetMoved().GetBlocks(), summary.GetLost().GetBlocks(), summary.GetSkipped().GetBlocks())
	if has := fmt.Sprintf("%d moved, %d lost, %d skipped", w.counts["moved"], w.counts["lost"], w.counts["skipped"]); has != says {
		s.log.Warn("a manifest's summary and its entries disagree: the larger figures count", "node", name, "incident", summary.Incident, "summary", says, "entries", has)
	}
	said, err := proto.Marshal(summary)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	ref := &registry.ManifestRef{
		File: w.name, Node: name, Incarnation: summary.Incarnation, Incident: summary.Incident, At: time.Now().UTC().Round(0), Summary: said,
		Bytes: w.bytes, Moved: max(w.counts["moved"], summary.GetMoved().GetBlocks()), Lost: max(w.counts["lost"], summary.GetLost().GetBlocks()),
		Skipped: max(w.counts["skipped"], summary.GetSkipped().GetBlocks()), // a disk may not have taken all entries
	}
	if summary.FinishedAt != nil {
		ref.Finished = summary.FinishedAt.AsTime()
	}
	events, err := s.quotas.doFor(name, registry.Command{Do: registry.DoGoodbye, Nodes: []string{name}, Incarnation: summary.Incarnation, Manifest: ref})
	if errors.Is(err, errNoLog) || errors.Is(err, errDeposed) {
		s.accounts.doubt(ref, w.lost) // the entry may be in the log all the same, or come there: then the file counts
		return asStatus(err)
	}
	if err != nil || len(events) == 0 { // refused, or of a decommission that was undone: the file counts for nothing
		s.accounts.files.remove(w.name)
		return asStatus(err)
	}
	s.accounts.keep(ref, w.lost)
	return nil
}

// unwritten is the error for a node whose manifest was not taken. Unless err says what is wrong with the manifest itself, it blames the
// coordinator's disk.
func (s *membership) unwritten(name string, err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	s.log.Error("a manifest cannot be written", "node", name, "err", err)
	return status.Errorf(codes.Unavailable, "the coordinator cannot write the manifest: %v: try again, or look at the disk of its data_dir", err)
}

func checkSummary(s *api.ManifestSummary) error {
	if s == nil {
		return fault("goodbye without a summary: the first message carries it")
	}
	for _, at := range []*timestamppb.Timestamp{s.NoticedAt, s.Deadline, s.StartedAt, s.FinishedAt} {
		if at != nil && at.CheckValid() != nil {
			return fault("manifest: %v", at.CheckValid())
		}
	}
	for _, c := range []*api.Count{s.Total, s.Moved, s.Lost, s.Skipped} {
		if err := checkSizes("manifest counts", c.GetBlocks(), c.GetBytes()); err != nil {
			return err
		}
	}
	return cmp.Or(checkCount("unfinished", len(s.Unfinished), maxUnfinished), checkTexts("unfinished", s.Unfinished), checkIncarnation(s.Incarnation), checkWord("incident", s.Incident, maxWord),
		checkWord("kind", s.Kind, maxWord), checkWord("source", s.Source, maxWord))
}

func checkManifest(r *api.GoodbyeRequest) error {
	count := len(r.Entries)
	for _, run := range r.Runs {
		count += len(run.GetBlocks().GetLengths())
	}
	if err := checkCount("entries", count, maxBlocks); err != nil {
		return err
	}
	return cmp.Or(checkEach(r.Entries, checkEntry), checkEach(r.Runs, checkManifestRun))
}

func checkEntry(e *api.ManifestEntry) error {
	if err := checkAccounted(e.GetId(), e.GetOutcome()); err != nil {
		return err
	}
	if e.GetBytes() < 0 {
		return checkSizes("manifest entry "+e.GetId(), e.GetBytes())
	}
	return checkFate(e.GetOutcome(), e.GetPeer(), e.GetReason())
}

func checkManifestRun(r *api.ManifestRun) error {
	return cmp.Or(checkFate(r.GetOutcome(), r.GetPeer(), r.GetReason()),
		checkRun(r.GetBlocks(), func(id string) error { return checkAccounted(id, r.GetOutcome()) }))
}

// checkAccounted is checkID, but lets an unnamed entry through if its outcome is lost.
func checkAccounted(id, outcome string) error {
	if unnamed(id) && outcome == "lost" {
		return checkText("manifest entry", id)
	}
	return checkID(id)
}

func checkFate(outcome, peer, reason string) error {
	switch outcome {
	case "moved", "lost", "skipped":
	default:
		return fault("manifest entry of outcome %q: must be moved, lost or skipped", outcome)
	}
	return cmp.Or(checkWord("peer", peer, maxName), checkText("reason", reason))
}

// unnamed reports whether an entry stands for blocks whose names could not be read, for instance on a disk that hangs: its id is a remark
// in parentheses.
func unnamed(id string) bool { return strings.HasPrefix(id, "(") && strings.HasSuffix(id, ")") }
