package workloads

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/lifeboat/lifeboat/systemd"
)

// Units is the service manager as workloads need it.
type Units interface {
	// Look tells what a unit does now. systemd.ErrNoUnit: there is none of that name.
	Look(ctx context.Context, unit string) (systemd.Activity, error)
	// MainPID is the number of the unit's main process; 0: it has none.
	MainPID(ctx context.Context, unit string) (int, error)
	// Stop has the unit stopped, and does not wait for that.
	Stop(ctx context.Context, unit string) error
	// Kill sends a signal to all processes of the unit.
	Kill(ctx context.Context, unit string, s syscall.Signal) error
}

// Systemd is the service manager of this host. Each call opens a connection: one that is kept might break and need repair.
type Systemd struct{}

// Look implements Units.
func (Systemd) Look(ctx context.Context, unit string) (a systemd.Activity, err error) {
	err = asking(ctx, func(m *systemd.Manager) error { a, err = m.Activity(ctx, unit); return err })
	return a, err
}

// MainPID implements Units.
func (Systemd) MainPID(ctx context.Context, unit string) (pid int, err error) {
	err = asking(ctx, func(m *systemd.Manager) error {
		u, err := m.Unit(ctx, unit)
		pid = u.MainPID
		return err
	})
	return pid, err
}

// Stop implements Units.
func (Systemd) Stop(ctx context.Context, unit string) error {
	return asking(ctx, func(m *systemd.Manager) error { return m.BeginStop(ctx, unit) })
}

// StopAndWait returns when the unit has stopped.
func (Systemd) StopAndWait(ctx context.Context, unit string) error {
	return asking(ctx, func(m *systemd.Manager) error { return m.StopUnit(ctx, unit) })
}

// Kill implements Units.
func (Systemd) Kill(ctx context.Context, unit string, s syscall.Signal) error {
	return asking(ctx, func(m *systemd.Manager) error { return m.KillAll(ctx, unit, s) })
}

// detach moves a process into a scope of its own, so that it outlives a restart of this process's unit.
func (Systemd) detach(ctx context.Context, pid int) error {
	err := asking(ctx, func(m *systemd.Manager) error {
		return m.StartTransientScope(ctx, fmt.Sprintf("lifeboat-hook-%d.scope", pid), uint32(pid))
	})
	if errors.Is(err, systemd.ErrNotBooted) {
		return nil // without systemd nothing is killed by control group
	}
	return err
}

func asking(ctx context.Context, ask func(*systemd.Manager) error) error {
	m, err := systemd.OpenManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return ask(m)
}
