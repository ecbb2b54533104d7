package clustertest

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// The times that a host's service managers grant: logind's default delay, and systemd's default for a unit to stop.
const (
	inhibitDelay = 5 * time.Second
	stopTimeout  = 90 * time.Second
)

// operating is a node's operating system, as far as its shutdown goes.
type operating struct {
	news chan systemd.Shutdown

	mu    sync.Mutex // guards what follows
	going systemd.Shutdown
	locks int // held by the agent
}

func newOperating() *operating { return &operating{news: make(chan systemd.Shutdown)} }

func (o *operating) logind(n *node) *preemption.Logind {
	return preemption.NewLogind(preemption.LogindConfig{
		Log:         n.c.log.With("at", n.name),
		Login:       func(context.Context) (preemption.Login, error) { return o, nil },
		GoingDown:   func(context.Context) (systemd.Shutdown, error) { return o.state(), nil },
		StopTimeout: func(context.Context) (time.Duration, error) { return stopTimeout, nil },
	})
}

func (o *operating) state() systemd.Shutdown {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.going
}

func (o *operating) set(s systemd.Shutdown) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.going = s
}

func (o *operating) held() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locks > 0
}

// Next, Preparing, MaxDelay, Inhibit and Close are a preemption.Login.
func (o *operating) Next(ctx context.Context) (systemd.Shutdown, error) {
	select {
	case s := <-o.news:
		return s, nil
	case <-ctx.Done():
		return systemd.Shutdown{}, ctx.Err()
	}
}

func (o *operating) Preparing(context.Context) (systemd.Shutdown, error) { return o.state(), nil }
func (o *operating) MaxDelay(context.Context) (time.Duration, error)     { return inhibitDelay, nil }
func (o *operating) Planned(context.Context) (systemd.Plan, error)       { return systemd.Plan{}, nil }
func (o *operating) Close() error                                        { return nil }

func (o *operating) Inhibit(context.Context, string) (io.Closer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.locks++
	return &lock{of: o}, nil
}

type lock struct {
	of   *operating
	once sync.Once
}

func (l *lock) Close() error {
	l.once.Do(func() {
		l.of.mu.Lock()
		defer l.of.mu.Unlock()
		l.of.locks--
	})
	return nil
}

// ShutDown takes the node's host down as systemd does it: logind announces it and waits for the locks, inhibitDelay at most, and then all
// services are told to stop. It returns for how long the lock and then the agent held it up.
func (c *Cluster) ShutDown(i int, how systemd.How) (byLock, byAgent time.Duration) {
	c.t.Helper()
	n := c.nodes[i]
	began := time.Now()
	c.prepareShutdown(n, systemd.Shutdown{Down: true, How: how})
	for n.system.held() && time.Since(began) < inhibitDelay {
		time.Sleep(10 * time.Millisecond)
	}
	byLock = time.Since(began)
	began = time.Now()
	n.shutDown()
	byAgent = time.Since(began)
	if byAgent > stopTimeout {
		c.t.Errorf("%s took %s to stop, and would have been killed after %s", n.name, byAgent, stopTimeout)
	}
	n.system.set(systemd.Shutdown{})
	return byLock, byAgent
}

// PrepareShutdown has logind announce that the host goes down, and CallOff that it does not after all.
func (c *Cluster) PrepareShutdown(i int) {
	c.prepareShutdown(c.nodes[i], systemd.Shutdown{Down: true, How: systemd.HowPowerOff})
}

func (c *Cluster) CallOff(i int) { c.prepareShutdown(c.nodes[i], systemd.Shutdown{}) }

// Inhibits reports whether the node's agent holds a lock that delays a shutdown.
func (c *Cluster) Inhibits(i int) bool { return c.nodes[i].system.held() }

func (c *Cluster) prepareShutdown(n *node, s systemd.Shutdown) {
	n.system.set(s)
	n.system.news <- s
}
