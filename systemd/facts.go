package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Host is what doctor can find out about the host's service manager before a notice comes. If a question had no answer, the
// error beside it says why, and the answer is empty.
type Host struct {
	Booted bool // systemd is the init of this host

	LoginErr error         // why logind did not answer both of the following
	MaxDelay time.Duration // how long a lock may hold a shutdown back
	Locks    []Inhibitor   // the locks of Lifeboat's processes; with none, no shutdown waits for the node

	Unit    Unit // of the process that holds the lock, or else the one that was asked for
	UnitErr error

	ClockSynced bool
	ClockErr    error
}

// Facts asks for all of these. If no process of Lifeboat holds a lock it looks up the named unit; empty: that of this
// process. ctx bounds all questions together.
func Facts(ctx context.Context, unit string) Host {
	h := Host{Booted: Booted()}
	h.ClockSynced, h.ClockErr = clockSynced()
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

// ours reports whether a lock is one of Lifeboat's, which holds a shutdown back until the node is empty.
func (i Inhibitor) ours() bool {
	return i.Who == who && i.Mode == "delay" && slices.Contains(strings.Split(i.What, ":"), "shutdown")
}

func (h *Host) askManager(ctx context.Context, name string) {
	var err error
	switch {
	case len(h.Locks) > 0:
		name, err = unitOf(int(h.Locks[0].PID))
	case name == "":
		name, err = ownUnit()
	}
	h.Unit.Name = name
	m, opened := OpenManager(ctx)
	if opened != nil {
		h.UnitErr = errors.Join(err, opened)
		return
	}
	defer m.Close()
	if h.UnitErr = err; err == nil {
		h.Unit, h.UnitErr = m.Unit(ctx, name)
	}
}

// clockSynced reports whether a time server keeps the clock, whichever program talks to it. It asks the kernel, as timedated
// does for its NTPSynchronized (ntp_synced in systemd's time-util.c): the possible error must be below 16 s.
func clockSynced() (bool, error) {
	var t unix.Timex // zero modes: nothing is set
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("ask the kernel about its clock: %w", err)
	}
	return t.Maxerror < 16_000_000, nil
}
