package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func TestEveryVerbExplainsItself(t *testing.T) {
	root := rootCommand()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q, want words without a full stop", path, c.Short)
		}
		if c != root && !strings.Contains(c.Example, "  lifeboat "+strings.TrimPrefix(path, "lifeboat ")) {
			t.Errorf("%s: Example does not show it: %q", path, c.Example)
		}
		if c.RunE == nil && c != root {
			t.Errorf("%s: no RunE: its errors would have no exit code", path)
		}
		wantNarrow(t, fmt.Sprintf("  %*s %s\n%s", -c.NamePadding(), c.Name(), c.Short, c.Example))
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

func TestWhichRoad(t *testing.T) {
	for _, c := range []struct {
		name                string
		coordinator, socket string // flags
		environment         string
		local, refused      bool
	}{
		{name: "nothing said", local: true},
		{name: "coordinator by environment", environment: "c1"},
		{name: "coordinator by flag", coordinator: "c1"},
		{name: "a flag beats the environment", socket: "/s", environment: "c1", local: true},
		{name: "both flags", socket: "/s", coordinator: "c1", refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("LIFEBOAT_COORDINATOR", c.environment)
			local, err := (&reach{coordinator: c.coordinator, socket: c.socket}).local()
			if local != c.local || (err != nil) != c.refused {
				t.Errorf("got %t, %v, want %t", local, err, c.local)
			}
		})
	}
}

func TestCoordinatorAddress(t *testing.T) {
	for given, want := range map[string]string{"": "", "c1": "c1:7411", "c1:1": "c1:1", "10.0.0.1": "10.0.0.1:7411", "::1": "[::1]:7411", "[::1]:5": "[::1]:5",
		"c1,c2:8": "c1:7411 c2:8", "c1, c2": "c1:7411 c2:7411", ",c1,": "c1:7411"} {
		if got := strings.Join((&reach{coordinator: given}).coordinatorAddrs(), " "); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// status asks this machine's agent rather than a coordinator that only the environment names.
func TestStatusByEnvironment(t *testing.T) {
	f := newFleet(t, false)
	f.put(t, "agent.json", `{"node": "host-a"}`)
	f.put(t, "status.json", `{"name": "c1"}`)
	t.Setenv("LIFEBOAT_COORDINATOR", f.coordinator)
	t.Setenv("LIFEBOAT_TLS_DIR", f.tls)
	for _, c := range []struct {
		socket, want string
		args         []string
	}{
		{f.socket, `"role": "agent"`, nil},
		{filepath.Join(f.dir, "none.sock"), `"role": "coordinator"`, nil},
		{f.socket, `"role": "coordinator"`, []string{"--coordinator", f.coordinator}},
	} {
		t.Setenv("LIFEBOAT_SOCKET", c.socket)
		code, stdout, stderr := lifeboat(t, append([]string{"status", "-o", "json"}, c.args...)...)
		if code != exitDone || !strings.Contains(stdout, c.want) {
			t.Errorf("%+v: got code %d, %s%s", c, code, stdout, stderr)
		}
	}
}

// eventStreams is a coordinator whose every stream gives the events after the index, and then breaks.
type eventStreams struct {
	api.OperatorClient
	streams []stream
	asked   []uint64
}

type stream struct {
	grpc.ServerStreamingClient[api.Event]
	events []*api.Event
	err    error
	ctx    context.Context
}

func (s *stream) Recv() (*api.Event, error) {
	if len(s.events) == 0 && s.err == nil {
		<-s.ctx.Done() // nothing happens
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
	if len(s.events) == 0 {
		return nil, s.err
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e, nil
}

func (e *eventStreams) Events(ctx context.Context, req *api.EventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[api.Event], error) {
	e.asked = append(e.asked, req.GetAfter())
	s := e.streams[0]
	e.streams = e.streams[1:]
	if s.events == nil && s.err != nil {
		return nil, s.err
	}
	s.ctx = ctx
	return &s, nil
}

// With | head -1 the verb ends after the first event, and does not wait for the next.
func TestFollowEndsWhenNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := follower{operator: &eventStreams{streams: []stream{{}}}, link: &link{whom: "coordinator c1"}, w: io.Discard, stderr: io.Discard, unread: func() bool { return time.Since(began) > time.Minute }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := f.run(ctx, true); err != nil || time.Since(began) > time.Minute+2*show.WatchPace {
			t.Errorf("got %v after %s, want the end a moment after a minute", err, time.Since(began))
		}
	})
}

func TestFollowGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := status.Error(codes.Unavailable, "restarting")
		refused := status.Error(codes.PermissionDenied, "no longer yours")
		operator := &eventStreams{streams: []stream{
			{events: []*api.Event{{Index: 1, Type: "NodeLost"}, {Index: 2, Type: "NodeReturned"}}, err: away},
			{err: away},
			{err: away},
			{events: []*api.Event{{Index: 3, Type: "NodeLost"}}, err: io.EOF},
			{err: refused},
		}}
		var stdout, stderr bytes.Buffer
		f := follower{operator: operator, link: &link{whom: "coordinator c1"}, w: &stdout, stderr: &stderr, out: show.JSON}
		err := f.run(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), "no longer yours") {
			t.Errorf("got %v, want the refusal", err)
		}
		if got, want := strings.Count(stdout.String(), "\n"), 3; got != want {
			t.Errorf("got %d events, want %d: %s", got, want, stdout.String())
		}
		if got, want := fmt.Sprint(operator.asked), "[0 2 2 2 3]"; got != want {
			t.Errorf("asked after %s, want %s", got, want)
		}
		if got := strings.Count(stderr.String(), "restarting (this goes on by itself when one answers)\n"); got != 1 {
			t.Errorf("said %d times that the coordinator is away, want once: %s", got, stderr.String())
		}
	})
}

// knownNodes is a coordinator that knows one node.
type knownNodes struct {
	*eventStreams
	name string
}

func (k *knownNodes) GetNode(_ context.Context, r *api.GetNodeRequest, _ ...grpc.CallOption) (*api.Node, error) {
	if r.GetNode() != k.name {
		return nil, status.Error(codes.NotFound, "not known here")
	}
	return &api.Node{Name: k.name}, nil
}

// Who follows a node whose name is mistyped would wait for ever.
func TestFollowAsksBackForANodeThatNobodyKnows(t *testing.T) {
	for node, want := range map[string]string{"host-a": "", "hots-a": "hots-a: no node of that name is known: is that its name?\n"} {
		var stderr bytes.Buffer
		streams := &eventStreams{streams: []stream{{events: []*api.Event{}, err: status.Error(codes.PermissionDenied, "no longer yours")}}}
		f := follower{operator: &knownNodes{streams, "host-a"}, link: &link{whom: "coordinator c1"}, w: io.Discard, stderr: &stderr, node: node}
		if err := f.run(t.Context(), true); err == nil || stderr.String() != want {
			t.Errorf("%s: got %v, %q, want %q", node, err, stderr.String(), want)
		}
	}
}

func TestFollowFailsWhenNobodyIsThere(t *testing.T) {
	away := status.Error(codes.Unavailable, "connection refused")
	f := follower{operator: &eventStreams{streams: []stream{{err: away}}}, link: &link{whom: "coordinator c1"}, w: io.Discard, stderr: io.Discard}
	if err := f.run(t.Context(), true); err == nil {
		t.Error("got nil, want an error")
	}
}

// An error on this side, such as a full disk under the output, is not reported as the coordinator's answer.
func TestOwnTroubleIsNotTheCoordinators(t *testing.T) {
	f := newFleet(t, true)
	to := &reach{coordinator: f.coordinator, devInsecure: true}
	err := ask(t.Context(), to.operator, "forget host-a", askTimeout, func(context.Context, api.OperatorClient) error { return syscall.ENOSPC })
	if err != syscall.ENOSPC {
		t.Errorf("got %v", err)
	}
}
