package systemd

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Host is what there is to know about the host's service manager before a notice comes. Where a question had no answer,
// the error beside it says why, and the answer is empty.
type Host struct {
	Booted bool // systemd is the init of this host

	State    string // of the system: running, degraded, stopping, ...
	StateErr error

	LoginErr error         // why logind does not answer; the following two are empty then
	MaxDelay time.Duration // for how long a lock may hold a shutdown back
	Locks    []Inhibitor   // those that a process of ours holds: none, and no shutdown waits for the node

	Unit    Unit // that of the process that holds the lock, or else the one that was asked for
	UnitErr error

	ClockSynced bool
	ClockErr    error
}

// Facts asks for all of that. Where nobody holds the lock it looks at a unit by its name; empty: that of this process. ctx
// bounds all questions together.
func Facts(ctx context.Context, unit string) Host {
	h := Host{Booted: Booted()}
	h.ClockSynced, h.ClockErr = ClockSynced()
	h.LoginErr = h.askLogin(ctx)
	h.askManager(ctx, unit)
	return h
}

func (h *Host) askLogin(ctx context.Context) error {
	l, err := OpenLogin(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if h.MaxDelay, err = l.MaxDelay(ctx); err != nil {
		return err
	}
	all, err := l.Inhibitors(ctx)
	for _, i := range all {
		if i.ours() {
			h.Locks = append(h.Locks, i)
		}
	}
	return err
}

// ours tells whether a lock is one that holds a shutdown back until the node is empty.
func (i Inhibitor) ours() bool {
	for what := range strings.SplitSeq(i.What, ":") {
		if what == "shutdown" {
			return i.Who == Who && i.Mode == "delay"
		}
	}
	return false
}

func (h *Host) askManager(ctx context.Context, name string) {
	var err error
	switch {
	case len(h.Locks) > 0:
		name, err = UnitOf(int(h.Locks[0].PID))
	case name == "":
		name, err = OwnUnit()
	}
	h.Unit.Name = name
	m, opened := OpenManager(ctx)
	if opened != nil {
		h.StateErr, h.UnitErr = opened, errors.Join(err, opened)
		return
	}
	defer m.Close()
	h.State, h.StateErr = m.State(ctx)
	if h.UnitErr = err; err == nil {
		h.Unit, h.UnitErr = m.Unit(ctx, name)
	}
}
