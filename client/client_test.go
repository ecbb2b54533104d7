package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// city is a few coordinators in a bubble.
type city struct {
	mu    sync.Mutex // guards what follows
	there map[string]*coordinator
	leads string            // an address; "": none leads
	hints bool              // the others say which one leads
	names map[string]string // what they say it is instead
}

type coordinator struct {
	api.UnimplementedOperatorServer
	c       *city
	address string
	asked   int
	events  func(*api.EventsRequest, grpc.ServerStreamingServer[api.Event]) error // nil: it gives one event
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	stop    func() // ends the coordinator as if its process had ended
}

func (o *coordinator) refused() error {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	if o.asked++; o.asked > 1000 {
		return status.Error(codes.ResourceExhausted, "asked without end")
	}
	if o.c.leads == o.address {
		return nil
	}
	hint := &api.NotLeader{}
	if o.c.hints {
		hint.Address = cmp.Or(o.c.names[o.address], o.c.leads)
	}
	s, err := status.New(codes.Unavailable, "follows").WithDetails(hint)
	if err != nil {
		return err
	}
	return s.Err()
}

func (o *coordinator) GetNode(context.Context, *api.GetNodeRequest) (*api.Node, error) {
	return &api.Node{Name: o.address}, o.refused()
}

func (o *coordinator) Events(r *api.EventsRequest, stream grpc.ServerStreamingServer[api.Event]) error {
	if err := o.refused(); err != nil {
		return err
	}
	if o.events != nil {
		return o.events(r, stream)
	}
	return stream.Send(&api.Event{Index: r.GetAfter() + 1, Node: o.address})
}

func (o *coordinator) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}
func (o *coordinator) Close() error   { o.once.Do(func() { close(o.closed) }); return nil }
func (o *coordinator) Addr() net.Addr { return &net.UnixAddr{Name: o.address} }

func newCity(t *testing.T, addresses ...string) *city {
	c := &city{there: map[string]*coordinator{}}
	for _, a := range addresses {
		o := &coordinator{c: c, address: a, conns: make(chan net.Conn), closed: make(chan struct{})}
		c.there[a] = o
		s := grpc.NewServer()
		api.RegisterOperatorServer(s, o)
		done := make(chan struct{})
		go func() { defer close(done); s.Serve(o) }()
		o.stop = sync.OnceFunc(func() { s.Stop(); <-done })
		t.Cleanup(o.stop)
	}
	return c
}

func (c *city) dial(ctx context.Context, _, address string) (net.Conn, error) {
	o := c.there[address]
	if o == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	near, far := net.Pipe()
	select {
	case o.conns <- far:
		return near, nil
	case <-o.closed:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *city) conn(t *testing.T, addresses ...string) (*Conn, api.OperatorClient) {
	conn := New(Config{Addresses: addresses, Credentials: insecure.NewCredentials(), Dial: c.dial})
	t.Cleanup(func() { conn.Close() })
	return conn, api.NewOperatorClient(conn)
}

func (c *city) elect(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = address
}

func TestCallsFollowTheLeader(t *testing.T) {
	for _, s := range []struct {
		name  string
		given []string
		hints bool
	}{
		{"who is told", []string{"a:1", "b:1", "c:1"}, true},
		{"who is not", []string{"a:1", "b:1", "c:1"}, false},
		{"who knows one that follows", []string{"a:1"}, true},
		{"who knows dead ones", []string{"x:1", "y:1", "c:1"}, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCity(t, "a:1", "b:1", "c:1")
				c.hints, c.leads = s.hints, "c:1"
				conn, operator := c.conn(t, s.given...)
				for range 3 {
					n, err := operator.GetNode(t.Context(), &api.GetNodeRequest{})
					if err != nil || n.Name != "c:1" {
						t.Fatalf("got an answer of %v (%v), want c:1's", n, err)
					}
				}
				if c.there["a:1"].asked > 1 || conn.Address() != "c:1" {
					t.Errorf("a follower was asked %d times, and %s is asked next: the leader is not remembered", c.there["a:1"].asked, conn.Address())
				}
			})
		})
	}
}

// A caller that knows only one coordinator comes back to it when the leader that it named is gone.
func TestLeaderThatWasNamedIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1", "c:1")
		c.hints, c.leads = true, "c:1"
		conn, operator := c.conn(t, "a:1")
		if n, err := operator.GetNode(t.Context(), &api.GetNodeRequest{}); err != nil || n.Name != "c:1" {
			t.Fatalf("got an answer of %v (%v), want c:1's", n, err)
		}
		c.there["c:1"].stop()
		c.elect("b:1")
		for range 2 {
			n, err := operator.GetNode(t.Context(), &api.GetNodeRequest{})
			if err != nil || n.Name != "b:1" {
				t.Errorf("once c:1 is gone: got an answer of %v (%v) by %s, want b:1's", n, err, conn.Address())
			}
		}
	})
}

// The leader moved, and the others name its former address. It is found at the address where it is now.
func TestLeaderThatMovedIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1", "c:1")
		c.leads, c.hints, c.names = "c:1", true, map[string]string{"a:1": "former:1", "b:1": "former:1"}
		conn, operator := c.conn(t, "a:1", "b:1", "c:1")
		defer conn.Close()
		began := time.Now()
		if n, err := operator.GetNode(t.Context(), &api.GetNodeRequest{}); err != nil || n.GetName() != "c:1" {
			t.Errorf("got %v, %v, want the answer of the leader", n, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it was found after %s", took)
		}
	})
}

// A stream that breaks off before its first answer goes on elsewhere; later its end is an error.
func TestStreamsFollowTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1")
		c.leads, c.hints = "b:1", true
		_, operator := c.conn(t, "a:1", "b:1")
		stream, err := operator.Events(t.Context(), &api.EventsRequest{After: 7})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := stream.Recv(); err != nil || e.Index != 8 || e.Node != "b:1" {
			t.Errorf("got %v (%v), want event 8 of b:1", e, err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

// While there is no leader a call waits for one, though not for ever. If no coordinator answers it ends at once.
func TestCallsWaitForAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1")
		_, operator := c.conn(t, "a:1", "b:1")
		elected := time.AfterFunc(time.Second, func() { c.elect("b:1") })
		defer elected.Stop()
		began := time.Now()
		if _, err := operator.GetNode(t.Context(), &api.GetNodeRequest{}); err != nil || time.Since(began) > 1200*time.Millisecond {
			t.Errorf("got %v after %s, want an answer about a second later", err, time.Since(began))
		}
		c.elect("")
		began = time.Now()
		_, err := operator.GetNode(t.Context(), &api.GetNodeRequest{})
		if _, follows := api.LeaderOf(err); !follows || time.Since(began) > electionPatience+time.Second {
			t.Errorf("got %v after %s, want to be told that nobody leads", err, time.Since(began))
		}
		_, nobody := c.conn(t, "x:1", "y:1")
		began = time.Now()
		if _, err := nobody.GetNode(t.Context(), &api.GetNodeRequest{}); status.Code(err) != codes.Unavailable || time.Since(began) > time.Second {
			t.Errorf("got %v after %s, want to be told at once", err, time.Since(began))
		}
	})
}

// Two coordinators name each other as the leader, as those do that have each other's address. A call does not go from one to the other
// without a pause.
func TestCoordinatorsThatNameEachOtherAreNotHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "c1", "c2")
		c.hints, c.names = true, map[string]string{"c1": "c2", "c2": "c1"}
		_, operator := c.conn(t, "c1", "c2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: "x"})
		if asked := c.there["c1"].asked + c.there["c2"].asked; err == nil || asked > 300 {
			t.Errorf("got %v after %d calls in %v, want some in a hundredth of a second each", err, asked, time.Since(began))
		}
	})
}

// If no coordinator can be asked, and one for another reason than the next, the error has the reason of each.
func TestEachReasonIsTold(t *testing.T) {
	reasons := map[string]error{"a:1": errors.New("no route"), "b:1": errors.New("refused"), "c:1": errors.New("refused")}
	for _, s := range []struct {
		given []string
		want  string
	}{
		{[]string{"b:1", "a:1"}, "a:1: no route; b:1: refused"},
		{[]string{"b:1", "c:1"}, `connection error: desc = "transport: Error while dialing: refused"`},
		{[]string{"a:1"}, `connection error: desc = "transport: Error while dialing: no route"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := New(Config{Addresses: s.given, Credentials: insecure.NewCredentials(), Dial: func(_ context.Context, _, address string) (net.Conn, error) { return nil, reasons[address] }})
			defer conn.Close()
			_, err := api.NewOperatorClient(conn).GetNode(t.Context(), &api.GetNodeRequest{})
			if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != s.want {
				t.Errorf("%v: got %v, want %s", s.given, err, s.want)
			}
		})
	}
}

// If the leader that is named cannot be reached, the error says why, and not only that it leads.
func TestLeaderOutOfReachIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1")
		c.leads, c.hints = "x:1", true
		_, operator := c.conn(t, "x:1", "y:1", "a:1", "b:1")
		_, err := operator.GetNode(t.Context(), &api.GetNodeRequest{})
		if hint, follows := api.LeaderOf(err); !follows || hint.GetAddress() != "x:1" {
			t.Errorf("got %v, want the word that x:1 leads", err)
		}
		const why = "follows, and cannot be asked from here: dial x:1: connection refused"
		if got := status.Convert(err).Message(); got != why {
			t.Errorf("got %q, want %q", got, why)
		}
		stream, err := operator.Events(t.Context(), &api.EventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if got := status.Convert(err).Message(); got != why {
			t.Errorf("of a stream got %q, want %q", got, why)
		}
	})
}

// If none leads, the error names the coordinators that are missed.
func TestThoseThatAreMissedAtAnElectionAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1", "b:1")
		c.elect("")
		_, operator := c.conn(t, "x:1", "a:1")
		_, err := operator.GetNode(t.Context(), &api.GetNodeRequest{})
		if got, want := status.Convert(err).Message(), "follows; x:1: dial x:1: connection refused"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, follows := api.LeaderOf(err); !follows {
			t.Errorf("got %v, want the word that nobody leads", err)
		}
	})
}
