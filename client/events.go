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
)

// Gap is the type of an event that stands for others which are no longer kept: list the nodes anew. What is kept follows it.
const Gap = "Gap"

// Place is where an event stands among all of a fleet. Its text, which ParsePlace reads, is what to write down of it.
type Place = api.Place

// ParsePlace reads the text of a place: TERM.INDEX, TERM.INDEX.SOFT or INDEX.
func ParsePlace(text string) (Place, error) { return api.ParsePlace(text) }

// Event is one thing that happened to the fleet. docs/events.md lists the types and their data.
type Event struct {
	Place Place
	Time  time.Time // by the clock of the leader that decided or told it
	Type  string
	Node  string            // empty: it is about no single one
	Data  map[string]string // nil: there is none
}

// Filter is which events to follow. The zero one is all. A Gap always comes.
type Filter struct {
	Types []string // none: all
	Node  string   // empty: all
}

const (
	// Pauses between attempts to follow grow from the first to the longest, each with as much again by chance: a thousand
	// subscribers of a leader that is gone do not come as one.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second

	// wellAfter is how long a stream without an event has to have lasted for its end to be no failure to begin it: longer
	// than it takes to find that nobody leads, or that a machine does not answer (20 s in gRPC).
	wellAfter = 30 * time.Second
)

// Events follows the fleet's events after a place, in their order, until ctx ends or the loop is left. The zero place is
// before all that is kept. It goes from leader to leader and on after the last event that it gave: none of the log comes
// twice and none is left out, unless a Gap says so. What one leader alone tells (Place.Soft is not 0) may be missed while
// the lead changes.
//
// An error that may pass, such as that no coordinator has answered for some seconds, or has let this certificate in, is given
// once and the loop may go on: events follow when there are coordinators again. After one that will not pass, such as a certificate that may not read
// events, or that the Conn was closed, the loop ends.
//
// To know the fleet as well as what happens to it, ask for Newest, list the Nodes, and follow after what Newest said.
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

	failing time.Time // since when nobody lets it follow; zero: all is well
	told    bool      // of that
	pause   time.Duration
}

// round follows one leader. It says whether there is to be another.
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
	return pause(ctx, after)
}

// read gives the events of one stream. On is false when the loop was left.
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

// Newest is the place of the newest event of the log: what follows after it is news to whoever lists the nodes now.
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

// Node is one node.
func (c *Conn) Node(ctx context.Context, name string) (*api.Node, error) {
	n, err := api.NewOperatorClient(c).GetNode(ctx, &api.GetNodeRequest{Node: name})
	if err != nil {
		return nil, fmt.Errorf("ask for node %s: %w", name, err)
	}
	return n, nil
}

// Locate is where the block STORE/SCOPE/NAME has landed: State says whether it is held, lost or unknown. Unknown is not lost: a block that
// has not left its own node is, and for some seconds any when a coordinator has begun to lead. Candidates are who may have it then;
// Blocks asks them all.
func (c *Conn) Locate(ctx context.Context, id string) (*api.LocateReply, error) {
	r, err := api.NewOperatorClient(c).Locate(ctx, &api.LocateRequest{Id: id})
	if err != nil {
		return nil, fmt.Errorf("locate block %s: %w", id, err)
	}
	return r, nil
}
