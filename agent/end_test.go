package agent

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/preemption"
)

// stubborn is a monitor whose Run does not end.
type stubborn struct {
	sickDisk
	answers chan struct{}
}

func (s *stubborn) Run(context.Context) error { <-s.answers; return nil }

// An agent that is told to stop ends even if some of its work hangs on a disk.
func TestRunEndsThoughSomethingHangs(t *testing.T) {
	cfg := settings(t)
	synctest.Test(t, func(t *testing.T) {
		hung := &stubborn{answers: make(chan struct{})}
		hung.set(disks.Healthy)
		d := deps(cfg)
		d.Monitor = func(disks.Config) Monitor { return hung }
		d.Listen = func(string, string) (net.Listener, error) { return pipenet.Listen(), nil }
		d.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") }
		d.Clock = func() preemption.Moment { return preemption.Moment{Wall: time.Now()} }
		a, err := New(t.Context(), cfg, d)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- a.Run(ctx) }()
		time.Sleep(time.Minute)
		stop()
		told := time.Now()
		if err := <-over; err != nil || time.Since(told) > time.Minute/2 {
			t.Errorf("it ended after %s: %v", time.Since(told), err)
		}
		close(hung.answers)
		synctest.Wait()
	})
}
