package preemption

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// cloud is a pretend metadata service with an EC2 source that listens to it, in one bubble.
type cloud struct {
	*ec2fake.Service
	line
	source *EC2

	trouble atomic.Pointer[http.HandlerFunc] // answers in the service's place
	before  atomic.Pointer[func()]           // runs ahead of each request
	polls   atomic.Int64
	puts    atomic.Int64
}

// newCloud starts a cloud inside of a bubble; the source listens from the call of listen on.
func newCloud(t *testing.T, log *slog.Logger) *cloud {
	t.Helper()
	c := &cloud{Service: ec2fake.New(ec2fake.Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"})}
	c.begin(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	})}, func() { c.source.metadata.transport.CloseIdleConnections() })
	c.open(t, EC2Config{Metadata: Metadata{Log: log}})
	return c
}

// open makes the source anew, as cfg says, on the cloud's network.
func (c *cloud) open(t *testing.T, cfg EC2Config) {
	t.Helper()
	if c.source != nil {
		c.source.metadata.transport.CloseIdleConnections()
	}
	cfg.Endpoint = "http://metadata.test"
	if cfg.Dial == nil {
		cfg.Dial = c.dial
	}
	source, err := NewEC2(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.source = source
}

// listen asks the source over and over until the test ends.
func (c *cloud) listen(t *testing.T) { c.follow(t, c.source) }

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
