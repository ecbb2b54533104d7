package heartbeat

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// librarian is a coordinator that says that nobody has the blocks whose ids end in 7, and that it cannot tell of those that
// end in 8.
type librarian struct {
	coordinator
	asked []int
}

func (l *librarian) CheckHeld(_ context.Context, r *api.CheckHeldRequest) (*api.CheckHeldReply, error) {
	if len(r.Peers) > 0 {
		l.asked = append(l.asked, len(r.Peers))
		return &api.CheckHeldReply{Gone: r.Peers[:1], Renewed: map[string]string{r.Peers[len(r.Peers)-1]: fmt.Sprint("node-", r.Since)}, Index: 9}, nil
	}
	if len(r.Blocks) == 0 {
		return &api.CheckHeldReply{Index: 9}, nil
	}
	reply, place := &api.CheckHeldReply{Missing: []uint32{1 << 31}}, uint32(0) // a place outside the question
	if r.Elsewhere {
		// Each part of the question has another holder, and blocks that end in 7 have none.
		reply.Holders = []string{fmt.Sprint("part-", len(l.asked))}
	}
	for _, run := range r.Blocks {
		for id := range run.IDs() {
			if r.Elsewhere {
				reply.At = append(reply.At, map[bool]uint32{true: 0, false: 1}[strings.HasSuffix(id, "7")])
			}
			switch {
			case strings.HasSuffix(id, "7"):
				reply.Missing, reply.Why = append(reply.Missing, place), fmt.Sprint("first of question ", len(l.asked))
			case strings.HasSuffix(id, "8"):
				reply.Unsure++
			}
			place++
		}
	}
	if l.asked = append(l.asked, int(place)); r.Node != "host-a" || r.Age.AsDuration() != time.Minute {
		return nil, status.Errorf(codes.InvalidArgument, "asked by %s, with an age of %s", r.Node, r.Age.AsDuration())
	}
	return reply, nil
}

// A long question is split into messages of bounded size, and its answer is put together again.
func TestCheckHeldIsAskedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := newNetwork(), &librarian{}
		n.serve(t, addrA, l)
		c := newClient(t, config(n, addrA))
		defer start(t, c)()
		time.Sleep(time.Second)
		var blocks []*api.HeldBlock
		for i := range 2500 {
			blocks = append(blocks, &api.HeldBlock{Id: fmt.Sprintf("cache/%d/part-%d", i/1000, i), Bytes: 1})
		}
		held, err := c.CheckHeld(t.Context(), time.Minute, blocks)
		if err != nil || len(held.Missing) != 250 || held.Unsure != 250 || held.Why != "first of question 0" {
			t.Fatalf("got %d missing, %d unsure, why %q, %v, want 250 of each", len(held.Missing), held.Unsure, held.Why, err)
		}
		for i, at := range held.Missing {
			if at != 10*i+7 {
				t.Fatalf("number %d of the missing is at %d, want %d", i, at, 10*i+7)
			}
		}
		if len(l.asked) < 3 || l.asked[0] > batchItems {
			t.Errorf("asked in parts of %v", l.asked)
		}
		parts := len(l.asked)
		held, err = c.WhoElse(t.Context(), time.Minute, blocks)
		if err != nil || len(held.At) != len(blocks) || held.At[7] != "" || held.At[8] != fmt.Sprint("part-", parts) || held.At[2499] != fmt.Sprint("part-", len(l.asked)-1) {
			t.Errorf("who has each: got %d of %d, %v", len(held.At), len(blocks), err)
		}
		if held, err := c.CheckHeld(t.Context(), time.Minute, nil); err != nil || len(held.Missing) > 0 {
			t.Errorf("asked about nothing: got %v, %v", held, err)
		}
		l.asked = nil
		peers := make([]string, mostTakers+1)
		peers[0], peers[mostTakers-1], peers[mostTakers] = "b", "x", "c"
		is, err := c.CheckPeers(t.Context(), 5, peers)
		if err != nil || !slices.Equal(is.Gone, []string{"b", "c"}) || !slices.Equal(l.asked, []int{mostTakers, 1}) {
			t.Errorf("who is gone: got %q, %v, asked in parts of %v", is.Gone, err, l.asked)
		}
		if !maps.Equal(is.Renewed, map[string]string{"x": "node-5", "c": "node-5"}) || is.Index != 9 {
			t.Errorf("who is another: got %v, %d", is.Renewed, is.Index)
		}
		l.asked = nil
		if is, err := c.CheckPeers(t.Context(), 0, nil); err != nil || len(is.Gone) > 0 || is.Index != 9 {
			t.Errorf("of nobody: got %v, %v", is, err)
		}
	})
}
