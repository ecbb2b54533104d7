package heartbeat

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

func notLeader(t *testing.T, leader string) error {
	s, err := status.New(codes.Unavailable, "follows").WithDetails(&api.NotLeader{Leader: "c", Address: leader})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// follower refuses every call and says who leads; "": it does not know.
type follower struct {
	*coordinator
	t       *testing.T
	leader  string
	located *atomic.Int64 // how often it was asked where a block is
}

func newFollower(t *testing.T, leader string) follower {
	return follower{&coordinator{}, t, leader, new(atomic.Int64)}
}

func (f follower) WorkerDecommission(context.Context, *api.WorkerDecommissionRequest) (*api.WorkerDecommissionReply, error) {
	return nil, notLeader(f.t, f.leader)
}

func (f follower) Register(context.Context, *api.RegisterRequest) (*api.RegisterReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats = append(f.beats, nil)
	return nil, notLeader(f.t, f.leader)
}

func (f follower) Heartbeat(context.Context, *api.HeartbeatRequest) (*api.HeartbeatReply, error) {
	return nil, notLeader(f.t, f.leader)
}

func (f follower) Locate(context.Context, *api.LocateRequest) (*api.LocateReply, error) {
	if f.located.Add(1) > 1000 {
		return nil, status.Error(codes.ResourceExhausted, "asked without end")
	}
	return nil, notLeader(f.t, f.leader)
}

// Two coordinators name each other as the leader, as those do that have each other's address. Calls do not go from one to the other without
// a pause.
func TestCoordinatorsThatNameEachOtherAreNotHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := newNetwork(), newFollower(t, addrB), newFollower(t, addrA)
		n.serve(t, addrA, a)
		n.serve(t, addrB, b)
		client := newClient(t, config(n, addrA, addrB))
		if _, err := client.Locate(t.Context(), "cache/-/x", false, ""); err == nil || a.located.Load()+b.located.Load() > 500 {
			t.Errorf("got %v after %d calls, want a pause between them", err, a.located.Load()+b.located.Load())
		}
	})
}

func TestBeatsFollowTheLeader(t *testing.T) {
	for name, addresses := range map[string][]string{
		"that is configured": {addrA, addrB, addrC},
		"that is not":        {addrA},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a, c := newNetwork(), newFollower(t, addrC), &coordinator{}
				n.serve(t, addrA, a)
				n.serve(t, addrB, newFollower(t, addrA))
				n.serve(t, addrC, c)
				client := newClient(t, config(n, addresses...))
				start(t, client)
				time.Sleep(10 * time.Second)
				if got := c.beatCount(); got < 8 {
					t.Errorf("the leader got %d beats in ten seconds, want one a second", got)
				}
				if got := a.beatCount(); got != 1 {
					t.Errorf("the follower got %d beats, want one: who leads is remembered", got)
				}
				if at, _, _ := client.Health(); at != addrC {
					t.Errorf("got %s in use, want %s", at, addrC)
				}
			})
		})
	}
}

// A notice that waited for an election is sent with the time that is left then.
func TestNoticeAgesWhileNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNetwork(), &coordinator{}
		n.serve(t, addrA, newFollower(t, ""))
		client := newClient(t, config(n, addrA, addrB))
		go func() { time.Sleep(3 * time.Second); n.serve(t, addrB, c) }()
		err := client.WorkerDecommission(t.Context(), &api.Notice{Incident: "i", Remaining: durationpb.New(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		said := read(c, func() *api.WorkerDecommissionRequest { return c.calls[0].(*api.WorkerDecommissionRequest) })
		if left := said.Notice.Remaining.AsDuration(); left > 57*time.Second || left < 55*time.Second {
			t.Errorf("got %s left, want the minute less the three seconds that passed", left)
		}
	})
}

// A new leader asks every node for a full report, and each sends it at a moment of its own.
func TestFullReportsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		if got := c.draw(); got != 0 {
			t.Errorf("got a pause of %s without a wish for one", got)
		}
		c.paceReports(10 * time.Second)
		var early, late int
		for range 1000 {
			switch d := c.draw(); {
			case d < 0 || d >= 10*time.Second:
				t.Fatalf("drew %s, want less than 10s", d)
			case d < 5*time.Second:
				early++
			default:
				late++
			}
		}
		if early < 400 || late < 400 {
			t.Errorf("drew %d early and %d late: want them spread", early, late)
		}
	})
}
