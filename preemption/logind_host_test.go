package preemption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

var (
	goesOff = systemd.Shutdown{Down: true, How: systemd.HowPowerOff}
	reboots = systemd.Shutdown{Down: true, How: systemd.HowReboot}
	stays   = systemd.Shutdown{}
)

// loginHost is a machine with a logind and a service manager, or without.
type loginHost struct {
	mu          sync.Mutex
	absent      error            // why logind cannot be reached
	refuses     error            // why it gives no lock
	down        systemd.Shutdown // what logind says
	manager     systemd.Shutdown // what the service manager says
	unsure      error            // why the manager says nothing
	stop        time.Duration    // 0: this process is in no unit
	plan        systemd.Plan     // what logind has planned
	noPlans     error            // why it does not say
	connections []*loginConn
	tries       int // to connect
	locks       int // held now
	most        int // held at once
}

// loginConn is a connection to the host's logind.
type loginConn struct {
	*loginHost
	said   chan systemd.Shutdown
	lost   chan struct{}
	closed bool
}

func newLoginHost() *loginHost { return &loginHost{stop: 90 * time.Second} }

func (h *loginHost) source(t *testing.T) (*Logind, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return NewLogind(LogindConfig{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Login: h.login, GoingDown: h.goingDown, StopTimeout: h.stopTimeout,
	}), &log
}

func (h *loginHost) login(context.Context) (Login, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
	if h.absent != nil {
		return nil, h.absent
	}
	s := &loginConn{loginHost: h, said: make(chan systemd.Shutdown, 8), lost: make(chan struct{})}
	h.connections = append(h.connections, s)
	return s, nil
}

func (h *loginHost) goingDown(context.Context) (systemd.Shutdown, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.manager, h.unsure
}

func (h *loginHost) stopTimeout(context.Context) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop == 0 {
		return 0, systemd.ErrNoUnit
	}
	return h.stop, nil
}

// say makes logind announce a shutdown, by a signal and in its property.
func (h *loginHost) say(s systemd.Shutdown) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = s
	h.connections[len(h.connections)-1].said <- s
}

// set changes the host.
func (h *loginHost) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// restart ends the connection. A logind that restarts knows of no shutdown that it began.
func (h *loginHost) restart() {
	h.set(func() {
		h.down = systemd.Shutdown{}
		close(h.connections[len(h.connections)-1].lost)
	})
}

func (h *loginHost) held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.locks
}

func (s *loginConn) Next(ctx context.Context) (systemd.Shutdown, error) {
	select {
	case said := <-s.said:
		return said, nil
	case <-s.lost:
		return systemd.Shutdown{}, systemd.ErrLost
	case <-ctx.Done():
		return systemd.Shutdown{}, ctx.Err()
	}
}

func (s *loginConn) Preparing(context.Context) (systemd.Shutdown, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return systemd.Shutdown{Down: s.down.Down}, s.absent // an older logind: only its signal says how
}

func (s *loginConn) Planned(context.Context) (systemd.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan, cmp.Or(s.noPlans, s.absent)
}

func (s *loginConn) MaxDelay(context.Context) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 30 * time.Second, s.absent
}

func (s *loginConn) Inhibit(context.Context, string) (io.Closer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down.Down {
		return nil, errors.New("the operation inhibition has been requested for is already running") // as logind does
	}
	if s.refuses != nil {
		return nil, s.refuses
	}
	s.locks++
	s.most = max(s.most, s.locks)
	return &loginLock{loginHost: s.loginHost}, nil
}

func (s *loginConn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

type loginLock struct {
	*loginHost
	once sync.Once
}

func (l *loginLock) Close() error {
	l.once.Do(func() { l.set(func() { l.locks-- }) })
	return nil
}

// listenToLogind returns a host that is up and at rest, and what is heard of it.
func listenToLogind(t *testing.T) (*loginHost, *overheard) {
	t.Helper()
	host := newLoginHost()
	l, _ := host.source(t)
	return host, listenTo(t, l)
}

// listenTo runs a source in the background, as a watcher does, and returns what it gives.
func listenTo(t *testing.T, s Source) *overheard {
	t.Helper()
	h := &overheard{}
	h.end = h.follow(t, s)
	synctest.Wait()
	return h
}

type overheard struct {
	line
	end func()
}

// take waits until the bubble is idle and returns what was heard since the last call.
func (h *overheard) take() []said { return h.all(0) }

func (h *overheard) one(t *testing.T) Notice {
	t.Helper()
	return h.within(t, 0).Notice
}
