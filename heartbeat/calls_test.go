package heartbeat

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

func calls(ctx context.Context, c *Client) map[string]error {
	_, locate := c.Locate(ctx, "a/b/c", false, "")
	return map[string]error{
		"WorkerDecommission": c.WorkerDecommission(ctx, &api.Notice{Incident: "inc-9"}),
		"Withdraw":           c.Withdraw(ctx, "inc-9"),
		"Unavailable":        c.Unavailable(ctx),
		"Goodbye":            c.Goodbye(ctx, nil, func(func(*api.ManifestEntry, error) bool) {}),
		"Locate":             locate,
	}
}

func TestCallsBeforeDuringAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		var stop func()
		for _, step := range []func(){func() {}, func() { stop = start(t, c); time.Sleep(time.Second) }, func() { stop() }} {
			step()
			for name, err := range calls(t.Context(), c) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		co.mu.Lock()
		defer co.mu.Unlock()
		type own interface {
			GetNode() string
			GetIncarnation() string
		}
		for _, call := range co.calls {
			if r, ok := call.(own); ok && (r.GetNode() != "host-a" || r.GetIncarnation() != "inc-1") {
				t.Errorf("got call %v, want it to carry the node's name and incarnation", call)
			}
		}
		if len(co.calls) != 12 {
			t.Errorf("got %d calls at the coordinator, want 4 in each of 3 rounds", len(co.calls))
		}
	})
}

func TestLocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.serve(t, addrA, &coordinator{})
		reply, err := newClient(t, config(n, addrA)).Locate(t.Context(), "a/b/c", false, "")
		if err != nil || reply.GetState() != "held" || len(reply.GetHolders()) != 1 {
			t.Errorf("got %v, %v; want one holder", reply, err)
		}
	})
}

func TestCallsWithoutACoordinatorFailSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		c := newClient(t, config(n, addrA))
		began := time.Now()
		for name, err := range calls(t.Context(), c) {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), addrA) {
				t.Errorf("%s: got %v, want unavailable, with the address", name, err)
			}
			if said := err.Error(); !strings.Contains(said, "coordinator "+addrA+": dial "+addrA+": connection refused") || strings.Contains(said, "rpc") {
				t.Errorf("%s: got %q, want the reason without gRPC's words around it", name, said)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("got %v for five refused calls, want no waiting", took)
		}
		n.listen(t, addrA) // takes the packets, never a connection
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began = time.Now()
		if err := c.Unavailable(ctx); err == nil {
			t.Error("got no error from a coordinator that drops packets")
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("got %v, want the context's 2 s at most", took)
		}
		began = time.Now()
		if err := c.Unavailable(t.Context()); err == nil || time.Since(began) > connectLimit {
			t.Errorf("got %v after %v, want an error within %v", err, time.Since(began), connectLimit)
		}
	})
}

func TestConfigNamesEveryFault(t *testing.T) {
	_, err := New(Config{Coordinators: []string{addrA, "host-without-port"}})
	for _, want := range []string{"node: ", "incarnation: ", `coordinators[1]: "host-without-port"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
	if _, err := New(Config{Node: "a", Incarnation: "i"}); err == nil {
		t.Error("got no error without a coordinator")
	}
}

func TestLastWordsReachTheCoordinatorOfTheLastBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA, addrB))
		stop := start(t, c)
		time.Sleep(5 * time.Second)
		co.set(func() { co.onBeat = hang })
		time.Sleep(2 * time.Second) // a beat is under way
		stop()
		if err := c.Unavailable(t.Context()); err != nil {
			t.Errorf("got %v, want the word to arrive though a beat was cut off", err)
		}
	})
}

// If a beat of the same moment overtakes the announcement of a restart, the restart is announced once more.
func TestUnavailableIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{overtakes: 1}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		if err := c.Unavailable(t.Context()); err != nil {
			t.Error(err)
		}
		co.overtakes = 9
		if err := c.Unavailable(t.Context()); status.Code(err) != codes.Aborted {
			t.Errorf("got %v, want that it was overtaken", err)
		}
		var last uint64
		for _, call := range co.calls {
			if r := call.(*api.ReportUnavailableRequest); r.Sequence <= last {
				t.Errorf("word %d after %d", r.Sequence, last)
			} else {
				last = r.Sequence
			}
		}
		if len(co.calls) != 4 {
			t.Errorf("said %d times, want twice each", len(co.calls))
		}
	})
}

// A coordinator takes its time to write that a node will be silent, and beats come in between. None of them, and none after, has
// the node register: it would count as present until its lease is over.
func TestNoBeatFollowsTheAnnouncementOfARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &slowToWrite{coordinator{interval: 100 * time.Millisecond}}
		stop := n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		start(t, c)
		time.Sleep(10 * time.Second)
		registered := func() int { return read(&co.coordinator, func() int { return len(co.registered) }) }
		if err := c.Unavailable(t.Context()); err != nil || registered() != 1 {
			t.Fatalf("registered %d times, %v", registered(), err)
		}
		c.Nudge()
		time.Sleep(10 * time.Second)
		if got := registered(); got != 1 {
			t.Errorf("the node registered %d times, want none after it said that it will be silent", got)
		}
		stop()
		beats := co.beatCount()
		if err := c.Unavailable(t.Context()); err == nil {
			t.Error("nobody was there to hear it")
		}
		n.serve(t, addrA, co)
		time.Sleep(10 * time.Second)
		if co.beatCount() == beats {
			t.Error("nobody has heard that it will be silent, and it is")
		}
	})
}

// slowToWrite has nodes that announced a restart come back by registering.
type slowToWrite struct{ coordinator }

func (c *slowToWrite) ReportUnavailable(ctx context.Context, r *api.ReportUnavailableRequest) (*api.ReportUnavailableReply, error) {
	time.Sleep(time.Second)
	c.set(func() { c.known = false })
	return c.coordinator.ReportUnavailable(ctx, r)
}
