package client

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// A coordinator that is cut off does not refuse a call: it says nothing. That costs one call's time, and not the next
// one's.
func TestSilentCoordinatorCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "b:1")
		c.leads = "b:1"
		conn := c.silentExcept(t, "b:1", "a:1", "b:1")
		for _, want := range []codes.Code{codes.DeadlineExceeded, codes.OK} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // less than the wait for a connection
			_, err := api.NewOperatorClient(conn).GetNode(ctx, &api.GetNodeRequest{})
			cancel()
			if got := status.Code(err); got != want {
				t.Errorf("got %s (%v), want %s", got, err, want)
			}
		}
	})
}

// A call with more time does not end at coordinators that accept the connection and hang: it goes on to one that
// answers.
func TestCallGoesPastSilentCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "c:1")
		c.leads = "c:1"
		start := time.Now()
		if _, err := api.NewOperatorClient(c.silentExcept(t, "c:1", "a:1", "b:1", "c:1")).GetNode(t.Context(), &api.GetNodeRequest{}); err != nil {
			t.Errorf("past two silent ones: %v", err)
		}
		if took := time.Since(start); took > 2*connectPatience+time.Second {
			t.Errorf("past two silent ones it took %v", took)
		}
		start = time.Now()
		_, err := api.NewOperatorClient(c.silentExcept(t, "", "a:1", "b:1")).GetNode(t.Context(), &api.GetNodeRequest{})
		if took := time.Since(start); status.Code(err) != codes.Unavailable || took > 2*connectPatience+time.Second {
			t.Errorf("with two silent ones and no other: %v after %v", err, took)
		}
	})
}

// silentExcept is a Conn to coordinators that accept connections and say nothing, except for one.
func (c *city) silentExcept(t *testing.T, speaks string, addresses ...string) *Conn {
	conn := New(Config{Addresses: addresses, Credentials: insecure.NewCredentials(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == speaks {
				return c.dial(ctx, network, address)
			}
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			return near, nil
		}})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A caller that has asked for an hour while no coordinator was there does not wait two minutes more once one is.
func TestCoordinatorThatIsBackIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a:1")
		c.leads = "a:1"
		var there atomic.Bool // the earlier connections may still be used
		conn := New(Config{Addresses: []string{"a:1"}, Credentials: insecure.NewCredentials(),
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if !there.Load() {
					return nil, net.ErrClosed
				}
				return c.dial(ctx, network, address)
			}})
		defer conn.Close()
		answers := func() bool {
			_, err := api.NewOperatorClient(conn).GetNode(t.Context(), &api.GetNodeRequest{})
			return err == nil
		}
		for range 3600 {
			time.Sleep(time.Second)
			if answers() {
				t.Fatal("it answers while it is away")
			}
		}
		there.Store(true)
		start := time.Now()
		for !answers() {
			if time.Sleep(100 * time.Millisecond); time.Since(start) > 2*redial.MaxDelay {
				t.Fatalf("%v after it came back it is still said to be away", time.Since(start))
			}
		}
	})
}
