package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Activity is what a unit does at one moment.
type Activity struct {
	State     string // active, activating, deactivating, inactive, failed, ...
	Processes int    // in its control group and those below
}

// Runs reports whether anything of the unit may still run.
func (a Activity) Runs() bool { return a.State != "inactive" && a.State != "failed" }

// Activity asks what a unit does, with two short questions where Unit asks for everything: it is called again and again.
// ErrNoUnit: systemd knows no unit of that name, so nothing of it runs.
func (m *Manager) Activity(ctx context.Context, name string) (Activity, error) {
	state, err := m.word(ctx, name, "ActiveState")
	if err != nil {
		return Activity{}, err
	}
	a := Activity{State: state}
	if !a.Runs() {
		loaded, err := m.word(ctx, name, "LoadState")
		if err == nil && loaded == "not-found" {
			err = fmt.Errorf("look up %s: %w", name, ErrNoUnit)
		}
		return a, err
	}
	kind := map[string]string{".service": "Service", ".scope": "Scope"}[suffix(name)]
	if kind == "" {
		return a, nil
	}
	p, err := m.conn.GetUnitTypePropertyContext(ctx, name, kind, "ControlGroup")
	if err != nil {
		return a, fmt.Errorf("look up %s: %w", name, err)
	}
	group, _ := p.Value.Value().(string)
	a.Processes = processesIn(group)
	return a, nil
}

func (m *Manager) word(ctx context.Context, name, property string) (string, error) {
	p, err := m.conn.GetUnitPropertyContext(ctx, name, property)
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", name, err)
	}
	s, _ := p.Value.Value().(string)
	return s, nil
}

// processesIn counts the processes of a control group and those below it, whether all of them share one hierarchy or
// systemd has one of its own (cgroups(7)). A group that is gone has none.
func processesIn(group string) (n int) {
	if group == "" || group == "/" {
		return 0
	}
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root = filepath.Join(root, "systemd")
	}
	_ = filepath.WalkDir(filepath.Join(root, filepath.Clean("/"+group)), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			pids, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			n += bytes.Count(pids, []byte("\n"))
		}
		return nil // a group that goes away meanwhile has no processes
	})
	return n
}

// BeginStop tells systemd to stop a unit, and does not wait.
func (m *Manager) BeginStop(ctx context.Context, name string) error {
	if _, err := m.conn.StopUnitContext(ctx, name, "replace", nil); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

// KillAll sends a signal to every process of a unit. A unit that has none left is no error.
func (m *Manager) KillAll(ctx context.Context, name string, signal syscall.Signal) error {
	err := m.conn.KillUnitWithTarget(ctx, name, sdbus.All, int32(signal))
	if answer, ok := errors.AsType[dbus.Error](err); ok && slices.Contains(noneLeft, answer.Name) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("send %v to all of %s: %w", signal, name, err)
	}
	return nil
}

// noneLeft are systemd's errors for there being nothing to signal (bus-common-errors.h).
var noneLeft = []string{"org.freedesktop.systemd1.NoSuchProcess", "org.freedesktop.systemd1.NoSuchUnit"}
