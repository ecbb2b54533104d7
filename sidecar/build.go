package sidecar

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

// build makes the actions of a configuration that was validated.
func (c *Config) build(deps Deps) ([]*action, error) {
	var all []*action
	for _, from := range c.Actions {
		from.fill() // a configuration that no file holds may leave the same things out
		way, err := c.open(from, deps)
		if err != nil {
			return nil, fmt.Errorf("action %s: %w", from.Name, err)
		}
		a := &action{name: from.Name, when: preemption.Stance(from.When), timeout: from.Timeout, Action: way}
		for _, p := range from.Phases {
			a.phases = append(a.phases, workloads.Phase(p))
		}
		all = append(all, a)
	}
	return all, nil
}

func (c *Config) open(a Action, deps Deps) (workloads.Action, error) {
	switch a.way() {
	case "signal":
		signal, err := workloads.ParseSignal(a.Signal.Signal)
		if err != nil {
			return nil, err
		}
		target, err := a.Signal.target()
		return workloads.Signal{Signal: signal, Target: target}, err
	case "unit":
		return workloads.Unit{Name: a.Unit.Name, Stop: stopUnit}, nil
	case "hook":
		h := workloads.Hook{Name: a.Name, Argv: a.Hook.Command, Dir: a.Hook.Dir, State: filepath.Join(c.DataDir, "hooks"), Detach: detach}
		for _, name := range slices.Sorted(maps.Keys(a.Hook.Env)) {
			h.Env = append(h.Env, name+"="+a.Hook.Env[name])
		}
		return program{h}, nil
	case "webhook":
		return workloads.Webhook{URL: a.Webhook.URL, Headers: a.Webhook.Headers, HeaderFiles: a.Webhook.HeaderFiles}, nil
	case "agent":
		return localAgent{socket: a.Agent.Socket, dial: deps.Dial}, nil
	default:
		return nil, fmt.Errorf("told by %q, which is not one way", a.way())
	}
}

// program is a hook by what it runs. Its arguments may hold what is not for logs.
type program struct{ workloads.Hook }

func (p program) String() string { return "run " + p.Argv[0] }

func (s Signal) target() (workloads.Target, error) {
	switch {
	case s.Unit != "":
		return workloads.MainProcess{Unit: s.Unit, PID: mainPID}, nil
	case s.PIDFile != "":
		return workloads.PIDFile(s.PIDFile), nil
	}
	m := workloads.Match{Comm: s.Match.Comm, User: s.Match.User}
	if s.Match.CmdLine == "" {
		return m, nil
	}
	var err error
	m.CmdLine, err = regexp.Compile(s.Match.CmdLine)
	return m, err
}

// mainPID, stopUnit and detach ask systemd anew each time: a connection that is kept would have to be mended.

func mainPID(ctx context.Context, unit string) (int, error) {
	m, err := systemd.OpenManager(ctx)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	u, err := m.Unit(ctx, unit)
	return u.MainPID, err
}

func stopUnit(ctx context.Context, unit string) error {
	m, err := systemd.OpenManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.StopUnit(ctx, unit)
}

// detach gives a program a scope of its own, so that it outlives a restart of the sidecar's unit.
func detach(ctx context.Context, pid int) error {
	if !systemd.Booted() {
		return nil // nobody here kills by control group
	}
	m, err := systemd.OpenManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.StartTransientScope(ctx, fmt.Sprintf("lifeboat-hook-%d.scope", pid), uint32(pid))
}
