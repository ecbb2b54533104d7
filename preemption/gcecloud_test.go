package preemption

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

// gceCloud is a pretend metadata server with a GCE source that listens to it, in one bubble.
type gceCloud struct {
	*gcefake.Service
	line
	source *GCE

	mu       sync.Mutex               // guards what follows
	trouble  http.HandlerFunc         // answers in the server's place
	only     func(*http.Request) bool // which requests are in trouble; nil: all
	lost     context.CancelFunc
	waiting  context.Context // of the requests under way, until they are lost
	requests map[string]int
	conns    map[net.Conn]bool
	mostOpen int
	polls    map[Poll]int
}

var spot = gcefake.Instance{ID: "4520031799277581759", MachineType: "n2-standard-4", Zone: "us-central1-a", Spot: true, Graceful: true}

// newGCECloud starts a cloud inside of a bubble; the source listens from the call of listen on.
func newGCECloud(t *testing.T, log *slog.Logger, instance gcefake.Instance) *gceCloud {
	t.Helper()
	c := &gceCloud{
		Service:  gcefake.New(instance),
		requests: make(map[string]int), conns: make(map[net.Conn]bool), polls: make(map[Poll]int),
	}
	c.waiting, c.lost = context.WithCancel(t.Context())
	c.begin(t, &http.Server{Handler: http.HandlerFunc(c.serve), ConnState: c.track}, func() { c.source.metadata.transport.CloseIdleConnections() })
	source, err := NewGCE(Metadata{
		Endpoint: "http://metadata.test", Log: log, Dial: c.dial,
		Polled: func(p Poll) {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.Took = 0
			c.polls[p]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.source = source
	return c
}

// serve answers as the service does or, if trouble has begun by then, even during the wait of a request, as the trouble
// does.
func (c *gceCloud) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests[r.URL.Path]++
	waiting := c.waiting
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(waiting, cancel)()
	answer := httptest.NewRecorder()
	if c.troubled(r) == nil {
		c.Service.ServeHTTP(answer, r.WithContext(ctx))
	}
	switch trouble := c.troubled(r); {
	case trouble != nil:
		trouble(w, r)
	case waiting.Err() != nil:
		<-r.Context().Done()
	default:
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	}
}

func (c *gceCloud) troubled(r *http.Request) http.HandlerFunc {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.only != nil && !c.only(r) {
		return nil
	}
	return c.trouble
}

func (c *gceCloud) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.conns, conn)
	}
	c.mostOpen = max(c.mostOpen, len(c.conns))
}

// failWith answers requests in the server's place, also those that wait for a change.
func (c *gceCloud) failWith(h http.HandlerFunc) {
	c.mu.Lock()
	c.trouble = h
	c.mu.Unlock()
	c.lose()
}

// lose makes the requests that wait for a change wait for ever.
func (c *gceCloud) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost()
	c.waiting, c.lost = context.WithCancel(context.Background())
}

// hangUp closes every connection.
func (c *gceCloud) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}

func (c *gceCloud) heal() {
	c.mu.Lock()
	c.trouble, c.only = nil, nil
	c.mu.Unlock()
	c.refuse.Store(false)
	c.Fail(0)
}

// asked returns how many requests there were, and resets the count.
func (c *gceCloud) asked() (total int, byPath map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byPath = c.requests
	c.requests = make(map[string]int)
	for _, n := range byPath {
		total += n
	}
	return total, byPath
}

// listen runs the source, and asks it over and over, until the test ends or the returned func is called.
func (c *gceCloud) listen(t *testing.T) (stop func()) { return c.follow(t, c.source) }

// health is how well the source is informed of a key.
func (c *gceCloud) health(t *testing.T, key string) Health {
	t.Helper()
	for _, h := range c.source.Health() {
		if h.Path == key {
			return h
		}
	}
	t.Fatalf("no health of %s", key)
	return Health{}
}

// gceBubble runs a test in a bubble with the cloud of a Spot VM. Cleanups run inside of it.
func gceBubble(t *testing.T, test func(t *testing.T, c *gceCloud)) {
	synctest.Test(t, func(t *testing.T) { test(t, newGCECloud(t, slog.New(slog.DiscardHandler), spot)) })
}
