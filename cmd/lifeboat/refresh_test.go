package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// RefreshNodes answers refresh.json, or refuses with the words of refused.txt.
func (f *fleet) RefreshNodes(_ context.Context, req *api.RefreshNodesRequest) (*api.RefreshNodesReply, error) {
	var r api.RefreshNodesReply
	if err := f.read("refresh.json", &r); err != nil {
		return nil, status.Error(codes.FailedPrecondition, "refused: /etc/x:3: host \"a,b\": commas")
	}
	return &r, f.asked(req)
}

// slowFleet has nodes that keep leaving until a forced decommission.
type slowFleet struct {
	api.OperatorClient

	mu    sync.Mutex // guards what follows
	ended map[string]time.Duration
	began time.Time
	asked []*api.DecommissionRequest
}

func (s *slowFleet) GetNode(_ context.Context, r *api.GetNodeRequest, _ ...grpc.CallOption) (*api.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &api.Node{Name: r.Node, State: "DECOMMISSIONING", SubState: "MIGRATING"}
	if at, ok := s.ended[r.Node]; ok && time.Since(s.began) >= at {
		n.State, n.SubState, n.Manifest = "DECOMMISSIONED", "", &api.ManifestSummary{}
		if len(s.asked) > 0 && strings.Contains(strings.Join(s.asked[0].Nodes, " "), r.Node) {
			n.SubState = "TIMEOUT"
		}
	}
	return n, nil
}

func (s *slowFleet) Decommission(_ context.Context, r *api.DecommissionRequest, _ ...grpc.CallOption) (*api.DecommissionReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	for _, n := range r.Nodes {
		s.ended[n] = time.Since(s.began)
	}
	return &api.DecommissionReply{}, nil
}

func leavingReply(timeout time.Duration, names ...string) *api.RefreshNodesReply {
	r := &api.RefreshNodesReply{Timeout: durationpb.New(timeout), Hosts: &api.HostLists{ExcludeFile: "/etc/x"}}
	for _, n := range names {
		r.Nodes = append(r.Nodes, &api.RefreshedNode{Node: &api.Node{Name: n, State: "DECOMMISSIONING"}, Action: "decommission"})
	}
	r.Nodes = append(r.Nodes, &api.RefreshedNode{Node: &api.Node{Name: "lost", State: "LOST"}})
	return r
}

func TestClientEndsWhatIsLeftAtItsHour(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		took    time.Duration
		asked   string
		code    int
	}{
		{"one is late", time.Minute, 66 * time.Second, "b", exitIncomplete},
		{"at once", 0, 6 * time.Second, "a b", exitIncomplete},
		{"no limit", -1, time.Hour, "", exitDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowFleet{ended: map[string]time.Duration{"a": 20 * time.Second, "b": time.Hour}, began: time.Now()}
				cmd := refreshNodesCommand()
				cmd.SetErr(&bytes.Buffer{})
				reply := leavingReply(c.timeout, "a", "b")
				ended, err := (&refresh{cmd: cmd}).wait(t.Context(), s, &link{whom: "c1"}, reply)
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(s.began); got < c.took || got > c.took+show.WatchPace {
					t.Errorf("took %s, want %s and a look", got, c.took)
				}
				var asked []string
				for _, r := range s.asked {
					asked = append(asked, r.Nodes...)
					if !r.LeavingOnly || r.Timeout == nil || r.Timeout.AsDuration() != 0 {
						t.Errorf("got %v, want an end for those only that are leaving", r)
					}
				}
				if asked := strings.Join(asked, " "); asked != c.asked {
					t.Errorf("got %q ended, want %q", asked, c.asked)
				}
				if got := exitCode(verdict("refresh-nodes", ended), true); verdict("refresh-nodes", ended) == nil && c.code != exitDone || verdict("refresh-nodes", ended) != nil && got != c.code {
					t.Errorf("got %v, want exit code %d", verdict("refresh-nodes", ended), c.code)
				}
				if got := reply.Nodes[0].Node.State + reply.Nodes[2].Node.State; got != "DECOMMISSIONEDLOST" {
					t.Errorf("got %s: the table shows what was, not what is", got)
				}
			})
		})
	}
}

func TestClientDetachesWhenInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		s := &slowFleet{ended: map[string]time.Duration{}, began: time.Now()}
		cmd := refreshNodesCommand()
		cmd.SetErr(&bytes.Buffer{})
		_, err := (&refresh{cmd: cmd}).wait(ctx, s, &link{}, leavingReply(time.Hour, "a"))
		const want = "detached: the decommission of a goes on by the coordinator's clock; `lifeboat refresh-nodes --graceful --client` shows it again; to take it back, take them out of /etc/x and run lifeboat refresh-nodes"
		if err == nil || err.Error() != want || exitCode(err, true) != exitFailed || len(s.asked) > 0 {
			t.Errorf("got %v, asked %v; want %s", err, s.asked, want)
		}
	})
}
