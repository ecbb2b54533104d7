package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Manager is a connection to systemd itself.
type Manager struct{ conn *sdbus.Conn }

// OpenManager connects to systemd. The connection lasts until Close or until ctx ends, whatever comes first.
//
// As root it connects to systemd directly: while the host goes down, the bus may be gone before this process is.
func OpenManager(ctx context.Context) (*Manager, error) {
	elsewhere := os.Getenv(busAddress) != ""
	if !elsewhere && !Booted() {
		return nil, ErrNotBooted
	}
	var direct error
	if !elsewhere && os.Geteuid() == 0 {
		conn, err := sdbus.NewSystemdConnectionContext(ctx)
		if err == nil {
			return &Manager{conn}, nil
		}
		direct = err
	}
	conn, err := sdbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reach systemd: %w", errors.Join(direct, err))
	}
	return &Manager{conn}, nil
}

// Close ends the connection.
func (m *Manager) Close() { m.conn.Close() }

// state is the state of the system as `systemctl is-system-running` prints it: running, degraded, stopping, ...
func (m *Manager) state(ctx context.Context) (string, error) {
	p, err := m.conn.SystemStateContext(ctx)
	if err != nil {
		return "", fmt.Errorf("ask systemd for its state: %w", err)
	}
	state, _ := p.Value.Value().(string)
	return state, nil
}

// StopUnit stops a unit and waits until it has stopped, or until ctx ends.
func (m *Manager) StopUnit(ctx context.Context, name string) error {
	done := make(chan string, 1)
	if _, err := m.conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return m.await(ctx, "stop "+name, done)
}

// StartTransientScope moves processes into a scope of their own, named like hook-1.scope, so that they outlive a restart of
// this process's unit. When the host goes down the scope stops only after this process's unit, so a process that it started
// goes no earlier than it does. The scope ends with its last process.
func (m *Manager) StartTransientScope(ctx context.Context, name string, pids ...uint32) error {
	if !strings.HasSuffix(name, ".scope") {
		return fmt.Errorf("start %s: a scope's name ends in .scope", name)
	}
	properties := []sdbus.Property{
		sdbus.PropDescription("Started by " + who),
		sdbus.PropPids(pids...),
		// A failed scope leaves nothing behind (systemd.unit(5)).
		{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")},
	}
	if own, err := ownUnit(); err == nil {
		properties = append(properties, sdbus.PropBefore(own)) // units stop in the opposite order of starting
	}
	done := make(chan string, 1)
	if _, err := m.conn.StartTransientUnitContext(ctx, name, "fail", properties, done); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return m.await(ctx, "start "+name, done)
}

// await waits for the end of a job.
func (m *Manager) await(ctx context.Context, what string, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: the job ended as %s", what, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}
