package coordinator

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"unique"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// errReportOvertaken ends a report that its node has given up: its connection was cut, and the node reports anew over another.
var errReportOvertaken = status.Error(codes.Aborted, "a newer report of this node was heard")

// ReportBlocks gathers a full report in a map of its own and swaps it in at the end, so that readers never see half of one.
func (s *membership) ReportBlocks(stream grpc.ClientStreamingServer[api.ReportBlocksRequest, api.ReportBlocksReply]) error {
	var name, machine, incarnation string
	var sequence uint64
	var full *blockmap.Map // the full report so far; nil: the report is of changes
	var words []blockmap.Word
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if name == "" {
			if name, machine, err = s.reporter(stream.Context(), r); err != nil {
				return err
			}
			incarnation, sequence = r.Incarnation, r.Sequence
			if r.Full {
				full = s.locations.asides.begin(name)
				defer s.locations.asides.end(name, full)
			}
		}
		if err := cmp.Or(checkReport(r), s.registered(name, incarnation)); err != nil {
			return err // another machine may have registered under the name meanwhile
		}
		if !s.leases.reports(name, sequence) || full != nil && !s.locations.asides.is(name, full) {
			return errReportOvertaken
		}
		s.locations.breaks(name, r.Broken)
		words = wordsOf(words[:0], name, r, s.lives.overIn)
		var news blockmap.Arrivals
		if full != nil {
			_, err = full.Hear(name, words)
		} else {
			news, err = s.locations.blocks.Hear(name, words)
		}
		s.locations.moves.add(name, news)
		if err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
	}
	if full != nil {
		if err := s.registered(name, incarnation); err != nil {
			return err
		}
		if !s.leases.reports(name, sequence) || !s.locations.asides.is(name, full) {
			return errReportOvertaken
		}
		s.locations.moves.add(name, s.locations.blocks.Replace(name, machine, full))
	}
	return stream.SendAndClose(&api.ReportBlocksReply{})
}

// asides are the full reports that are being received, one for each node, so that their memory is bounded like that of the block map.
type asides struct {
	mu sync.Mutex // guards what follows
	of map[string]*blockmap.Map
}

// begin starts a full report of a node. An earlier one that has not ended is dropped.
func (a *asides) begin(node string) *blockmap.Map {
	full := blockmap.New()
	a.mu.Lock()
	defer a.mu.Unlock()
	if was := a.of[node]; was != nil {
		was.Clear()
	}
	if a.of == nil {
		a.of = map[string]*blockmap.Map{}
	}
	a.of[node] = full
	return full
}

func (a *asides) is(node string, full *blockmap.Map) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[node] == full
}

func (a *asides) end(node string, full *blockmap.Map) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[node] == full {
		delete(a.of, node)
	}
}

// reporter is the node of a stream, by its first message, and the id of its machine.
func (s *membership) reporter(ctx context.Context, r *api.ReportBlocksRequest) (name, machine string, err error) {
	if name, err = speaker(ctx, r.GetNode()); err != nil {
		return "", "", err
	}
	n, _ := s.ledger.node(name)
	return name, n.ID, s.registered(name, r.Incarnation)
}

// overIn reports whether a STORE/SCOPE is of an app that is over.
func (v *lives) overIn(scope string) (over bool) {
	_, app, _ := strings.Cut(scope, "/")
	v.ledger.view(func(m *registry.Registry) { over = m.Lives[app].Over != "" })
	return over
}

// wordsOf appends a message of a node's report as words for the block map.
func wordsOf(words []blockmap.Word, node string, r *api.ReportBlocksRequest, overIn func(scope string) bool) []blockmap.Word {
	words = slices.Grow(words, blocksIn(r))
	scope, from := unique.Make(""), unique.Make("")
	for _, b := range r.Landed {
		if b.From != from.Value() {
			from = unique.Make(b.From)
		}
		words = append(words, blockmap.Word{Key: blockmap.KeyNear(b.Id, &scope), What: blockmap.Landed{Bytes: b.Bytes, From: from}})
	}
	for _, run := range r.Runs {
		from = unique.Make(run.From)
		if run.Blocks.Scope != "" {
			scope = unique.Make(run.Blocks.Scope)
		}
		for name, bytes := range run.Blocks.All() {
			k := blockmap.Key{Scope: scope, Name: name}
			if run.Blocks.Scope == "" {
				k = blockmap.KeyNear(name, &scope)
			}
			words = append(words, blockmap.Word{Key: k, What: blockmap.Landed{Bytes: bytes, From: from}})
		}
	}
	why := node + " removed it"
	if r.Why != "" {
		why += ": " + r.Why
	}
	over, of := false, unique.Make("")
	for _, id := range r.Gone {
		k := blockmap.KeyNear(id, &scope)
		if scope != of {
			over, of = overIn(scope.Value()), scope
		}
		words = append(words, blockmap.Word{Key: k, Gone: true, Over: over, Why: why})
	}
	return words
}

func blocksIn(r *api.ReportBlocksRequest) int {
	n := len(r.Landed) + len(r.Gone) + len(r.Broken)
	for _, run := range r.Runs {
		n += len(run.GetBlocks().GetLengths())
	}
	return n
}

func checkReport(r *api.ReportBlocksRequest) error {
	if err := checkCount("blocks", blocksIn(r), maxBlocks); err != nil {
		return err
	}
	return cmp.Or(checkEach(r.Runs, checkLandedRun), checkEach(r.Landed, checkHeld), checkEach(r.Broken, checkHeld), checkEach(r.Gone, checkID),
		checkWord("why blocks are gone", r.Why, maxWord+maxName)) // it may name a node
}

func checkLandedRun(r *api.HeldRun) error {
	return cmp.Or(checkRun(r.GetBlocks(), checkID), checkWord("from", r.GetFrom(), maxName))
}

func checkHeld(b *api.HeldBlock) error {
	if err := cmp.Or(checkID(b.GetId()), checkWord("from", b.GetFrom(), maxName)); err != nil || b.GetBytes() >= 0 {
		return err
	}
	return checkSizes("block "+b.GetId(), b.GetBytes())
}

// checkRun checks every id of a run as checkID does. For a run without a scope, whole checks the ids, which are complete then.
func checkRun(r *api.BlockRun, whole func(id string) error) error {
	if err := r.AddsUp(); err != nil {
		return fault("%v", err)
	}
	if r.Scope != "" && (strings.Count(r.Scope, "/") != 1 || checkID(r.Scope+"/x") != nil) {
		return fault("a run of blocks of scope %.100q: must be STORE/SCOPE, without control characters, at most %d bytes", r.Scope, maxID)
	}
	isPlain := plain(string(r.Names)) // one check instead of thousands; names that are not plain are checked one by one
	for name, bytes := range r.All() {
		var err error
		switch {
		case r.Scope == "":
			err = whole(name)
		case name == "" || len(r.Scope)+1+len(name) > maxID || !isPlain && !printable(name):
			err = checkID(r.Scope + "/" + name)
		}
		if err != nil {
			return err
		}
		if bytes < 0 {
			return checkSizes("block "+name, bytes)
		}
	}
	return nil
}
