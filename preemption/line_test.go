package preemption

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/pipenet"
)

// line connects a source to the pretend service that it asks, in one bubble, and keeps what the source says.
type line struct {
	network *pipenet.Listener
	refuse  atomic.Bool // connections
	heard   chan said
}

type said struct {
	Notice
	at time.Time
}

// begin runs a server until the test ends. Then hangUp closes the connections that the source has open.
func (l *line) begin(t *testing.T, server *http.Server, hangUp func()) {
	l.network = pipenet.Listen()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.network) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("server ended with %v", err)
		}
		hangUp()
	})
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.refuse.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return l.network.Dial(ctx, network, addr)
}

// follow runs a source, if it has a Run, and asks it over and over, until the test ends or stop is called.
func (l *line) follow(t *testing.T, source Source) (stop func()) {
	if l.heard == nil {
		l.heard = make(chan said, 1000)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	if r, ok := source.(Runner); ok {
		running.Go(func() {
			if err := r.Run(ctx); err != nil || ctx.Err() == nil {
				t.Errorf("Run gave up: %v", err)
			}
		})
	}
	running.Go(func() {
		for {
			n, err := source.Next(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("Next gave up: %v", err)
				}
				return
			}
			l.heard <- said{n, time.Now()}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// all returns what the source says before d has passed, and lets d pass.
func (l *line) all(d time.Duration) (heard []said) {
	time.Sleep(d)
	synctest.Wait()
	for len(l.heard) > 0 {
		heard = append(heard, <-l.heard)
	}
	return heard
}

// within returns what the source says before d has passed, which must be exactly one notice, and lets d pass.
func (l *line) within(t *testing.T, d time.Duration) said {
	t.Helper()
	heard := l.all(d)
	if len(heard) != 1 {
		t.Fatalf("in %v: heard %+v, want one notice", d, heard)
	}
	return heard[0]
}

// silent lets d pass, in which the source must say nothing.
func (l *line) silent(t *testing.T, d time.Duration) {
	t.Helper()
	if heard := l.all(d); len(heard) > 0 {
		t.Fatalf("in %v: heard %+v, want nothing", d, heard)
	}
}
