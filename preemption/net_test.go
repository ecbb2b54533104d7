package preemption

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// cloud is a pretend metadata service with an EC2 source that listens to it, in one bubble.
type cloud struct {
	*ec2fake.Service
	source *EC2
	heard  chan said

	trouble atomic.Pointer[http.HandlerFunc] // answers in the service's place
	before  atomic.Pointer[func()]           // runs ahead of each request
	refuse  atomic.Bool                      // connections
	polls   atomic.Int64
	puts    atomic.Int64

	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

type said struct {
	Notice
	at time.Time
}

// newCloud starts a cloud inside of a bubble; the source listens from the call of listen on.
func newCloud(t *testing.T, log *slog.Logger) *cloud {
	t.Helper()
	c := &cloud{
		Service: ec2fake.New(ec2fake.Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"}),
		heard:   make(chan said, 1000),
	}
	network := pipenet.Listen()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/latest/meta-data/"+pathAction {
			c.polls.Add(1)
		}
		if r.Method == http.MethodPut {
			c.puts.Add(1)
		}
		if before := c.before.Load(); before != nil {
			(*before)()
		}
		if trouble := c.trouble.Load(); trouble != nil {
			(*trouble)(w, r)
			return
		}
		c.Service.ServeHTTP(w, r)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(network) }()
	c.dial = func(ctx context.Context, nw, addr string) (net.Conn, error) {
		if c.refuse.Load() {
			return nil, &net.OpError{Op: "dial", Net: nw, Err: syscall.ECONNREFUSED}
		}
		return network.Dial(ctx, nw, addr)
	}
	c.open(t, EC2Config{Metadata: Metadata{Log: log}})
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("server ended with %v", err)
		}
		c.source.metadata.transport.CloseIdleConnections()
	})
	return c
}

// open makes the source anew, as cfg says, on the cloud's network.
func (c *cloud) open(t *testing.T, cfg EC2Config) {
	t.Helper()
	if c.source != nil {
		c.source.metadata.transport.CloseIdleConnections()
	}
	cfg.Endpoint, cfg.Dial = "http://metadata.test", c.dial
	source, err := NewEC2(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.source = source
}

// listen asks the source over and over until the test ends.
func (c *cloud) listen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := c.source.Next(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("Next gave up: %v", err)
				}
				return
			}
			c.heard <- said{n, time.Now()}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// within returns what the source says before d has passed, which must be exactly one notice, and lets d pass.
func (c *cloud) within(t *testing.T, d time.Duration) said {
	t.Helper()
	start := time.Now()
	time.Sleep(d)
	synctest.Wait()
	if got := len(c.heard); got != 1 {
		t.Fatalf("after %v: heard %d notices, want 1", time.Since(start), got)
	}
	return <-c.heard
}

// silent lets d pass, in which the source must say nothing.
func (c *cloud) silent(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for len(c.heard) > 0 {
		t.Fatalf("heard %+v, want nothing", <-c.heard)
	}
}

// onToken answers requests for a token with h.
func (c *cloud) onToken(h http.HandlerFunc) {
	c.failWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			h(w, r)
			return
		}
		c.Service.ServeHTTP(w, r)
	})
}

func (c *cloud) failWith(h http.HandlerFunc) { c.trouble.Store(&h) }
func (c *cloud) heal() {
	c.trouble.Store(nil)
	c.refuse.Store(false)
	c.TooFar(false)
	c.Fail(0)
}

// bubble runs a test in a bubble with a cloud. Cleanups run inside of it.
func bubble(t *testing.T, test func(t *testing.T, c *cloud)) {
	synctest.Test(t, func(t *testing.T) { test(t, newCloud(t, slog.New(slog.DiscardHandler))) })
}

// action is how well the source is informed of interruptions.
func (c *cloud) action() (lastGood time.Time, trouble string) {
	h := c.source.Health()[0]
	return h.LastGood, h.Trouble
}
