package clustertest

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

// Unit is a systemd service on a node. It runs until the test or the node's agent ends it, and outlives the agent.
type Unit struct {
	mu       sync.Mutex // guards what follows
	runs     bool
	stubborn bool
	hangs    bool
	stops    int
	kills    int
}

var _ workloads.Units = (*units)(nil)

// units are a machine's services.
type units struct {
	mu  sync.Mutex // guards all
	all map[string]*Unit
}

// Unit makes a service that runs on a node.
func (c *Cluster) Unit(i int, name string) *Unit {
	all := c.nodes[i].units
	all.mu.Lock()
	defer all.mu.Unlock()
	u := &Unit{runs: true}
	all.all[name] = u
	return u
}

// End makes the service end by itself.
func (u *Unit) End() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs = false
}

// Defy makes the service ignore that it is told to stop.
func (u *Unit) Defy() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stubborn = true
}

// Silence makes questions to the service manager about the service hang.
func (u *Unit) Silence() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hangs = true
}

// Ended reports whether the service has ended, and how often it was told to stop, and was killed.
func (u *Unit) Ended() (ended bool, stops, kills int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.runs, u.stops, u.kills
}

func (all *units) of(name string) (*Unit, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	u := all.all[name]
	if u == nil {
		return nil, fmt.Errorf("look up %s: %w", name, systemd.ErrNoUnit)
	}
	return u, nil
}

func (all *units) Look(ctx context.Context, name string) (systemd.Activity, error) {
	u, err := all.of(name)
	if err != nil {
		return systemd.Activity{}, err
	}
	u.mu.Lock()
	hangs, runs := u.hangs, u.runs
	u.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return systemd.Activity{}, ctx.Err()
	case runs:
		return systemd.Activity{State: "active", Processes: 1}, nil
	}
	return systemd.Activity{State: "inactive"}, nil
}

func (all *units) MainPID(context.Context, string) (int, error) { return 0, nil }

func (all *units) Stop(_ context.Context, name string) error {
	u, err := all.of(name)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stops++
	u.runs = u.runs && u.stubborn
	return nil
}

func (all *units) Kill(_ context.Context, name string, _ syscall.Signal) error {
	u, err := all.of(name)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kills++
	u.runs = false
	return nil
}
