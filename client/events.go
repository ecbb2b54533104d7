package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

// Gap is the type of an event that stands for others that are no longer kept. After it, list the nodes anew; the events that
// are kept follow.
const Gap = "Gap"

// Place is where an event stands among all events of a fleet. Write it down as its text, which ParsePlace reads.
type Place = api.Place

// ParsePlace reads the text of a place: TERM.INDEX, TERM.INDEX.SOFT or INDEX.
func ParsePlace(text string) (Place, error) { return api.ParsePlace(text) }

// Event is one thing that happened to the fleet. docs/events.md lists the types and their data.
type Event struct {
	Place Place
	Time  time.Time // by the clock of the leader that decided or told it
	Type  string
	Node  string            // empty: it is not about a single node
	Data  map[string]string // nil: there is none
}

// Filter says which events to follow. The zero Filter follows all. A Gap always comes.
type Filter struct {
	Types []string // none: all
	Node  string   // empty: all
}

const (
	// Pauses between attempts to follow grow from firstPause to longestPause, each with up to as much again by chance, so
	// that a thousand subscribers of a leader that is gone do not come at once.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second

	// wellAfter is how long a stream without an event must have lasted for its end not to count as a failure to begin it:
	// longer than it takes to find that no coordinator leads, or that a machine does not answer (20 s in gRPC).
	wellAfter = 30 * time.Second
)

// Events follows the fleet's events after a place, in their order, until ctx ends or the loop is left. The zero place is
// before all events that are kept. Events goes from leader to leader, and on after the last event that it gave: none of
// the log's events comes twice, and none is left out unless a Gap says so. Events that one leader alone tells (Place.Soft
// is not 0) may be missed while the lead changes.
//
// An error that may pass is given once, and the loop may go on: no coordinator has answered for some seconds, or none lets this certificate
// in. Events follow when there are coordinators again. After an error that will not pass the loop ends: the certificate may not read
// events, or the Conn was closed.
//
// To know the fleet and then what happens to it: call Newest, list the Nodes, and follow after the place that Newest
// returned.
func (c *Conn) Events(ctx context.Context, after Place, want Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := follower{conn: c, at: after, want: want, yield: yield}
		for f.round(ctx) {
		}
	}
}

// follower is one loop over events.
type follower struct {
	conn  *Conn
	at    Place
	want  Filter
	yield func(Event, error) bool

	failing time.Time // since when no coordinator lets it follow; zero: all is well
	told    bool      // the caller has been told
	pause   time.Duration
}

// round follows one leader, and reports whether there is to be another round.
func (f *follower) round(ctx context.Context) bool {
	began := time.Now()
	on, err := f.read(ctx)
	if !on || ctx.Err() != nil {
		return false
	}
	final := errors.Is(err, errClosed)
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		final = true
	}
	if final {
		f.yield(Event{}, fmt.Errorf("follow events after %s: %w", f.at, err))
		return false
	}
	now := time.Now()
	if now.Sub(began) > wellAfter || f.failing.IsZero() {
		f.failing, f.told, f.pause = now, false, firstPause
	}
	if !f.told && now.Sub(f.failing) > electionPatience {
		f.told = true
		if !f.yield(Event{}, fmt.Errorf("follow events after %s: %w", f.at, err)) {
			return false
		}
	}
	after := f.pause + rand.N(f.pause)
	f.pause = min(2*f.pause, longestPause)
	return await.Sleep(ctx, after)
}

// read yields the events of one stream. on is false when the loop was left.
func (f *follower) read(ctx context.Context) (on bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := api.NewOperatorClient(f.conn).Events(ctx, &api.EventsRequest{
		After: f.at.Index, AfterTerm: f.at.Term, AfterSoft: f.at.Soft, Types: f.want.Types, Node: f.want.Node, Follow: true,
	})
	if err != nil {
		return true, err
	}
	for {
		got, err := stream.Recv()
		if err != nil {
			return true, err
		}
		f.failing = time.Time{}
		e := Event{Place: api.PlaceOf(got), Time: got.GetTime().AsTime(), Type: got.GetType(), Node: got.GetNode(), Data: got.GetData()}
		if e.Type != Gap && e.Place.Compare(f.at) <= 0 {
			continue
		}
		f.at = e.Place
		if !f.yield(e, nil) {
			return false, nil
		}
	}
}

// Newest returns the place of the newest event of the log: events after it are news to a caller that lists the nodes
// afterwards.
func (c *Conn) Newest(ctx context.Context) (Place, error) {
	s, err := api.NewOperatorClient(c).GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
	if err != nil {
		return Place{}, fmt.Errorf("ask for the newest event: %w", err)
	}
	return Place{Index: s.GetLastIndex()}, nil
}

// Nodes lists all nodes, by name.
func (c *Conn) Nodes(ctx context.Context) ([]*api.Node, error) {
	r, err := api.NewOperatorClient(c).ListNodes(ctx, &api.ListNodesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	return r.GetNodes(), nil
}

// Node returns one node.
func (c *Conn) Node(ctx context.Context, name string) (*api.Node, error) {
	n, err := api.NewOperatorClient(c).GetNode(ctx, &api.GetNodeRequest{Node: name})
	if err != nil {
		return nil, fmt.Errorf("ask for node %s: %w", name, err)
	}
	return n, nil
}

// Locate returns where the block STORE/SCOPE/NAME has landed: State says whether it is held, lost or unknown. Unknown is not lost: a block
// that has never left its own node is unknown, and for some seconds after a coordinator has begun to lead any block may be. Candidates are
// then the nodes that may have it; Blocks asks them all.
func (c *Conn) Locate(ctx context.Context, id string) (*api.LocateReply, error) {
	r, err := api.NewOperatorClient(c).Locate(ctx, &api.LocateRequest{Id: id})
	if err != nil {
		return nil, fmt.Errorf("locate block %s: %w", id, err)
	}
	return r, nil
}
