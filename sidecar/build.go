package sidecar

import (
	"fmt"
	"path/filepath"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// build makes the actions of a configuration that was validated.
func (c *Config) build(deps Deps) ([]*action, error) {
	var all []*action
	for _, from := range c.Actions {
		from.fill() // a configuration that comes from no file lacks the defaults of Load
		way, err := c.open(from, deps)
		if err != nil {
			return nil, fmt.Errorf("action %s: %w", from.Name, err)
		}
		a := &action{name: from.Name, when: preemption.Stance(from.When), timeout: from.Timeout, again: from.way() == "signal" || from.way() == "unit", Action: way}
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
		return a.Signal.Open(workloads.Systemd{})
	case "unit":
		return workloads.Unit{Name: a.Unit.Name, Stop: workloads.Systemd{}.StopAndWait, MainPID: workloads.Systemd{}.MainPID}, nil
	case "hook":
		// Not in data_dir, where a full or broken disk would keep a program from starting. And not beside the hooks of an
		// agent, which may use the same directory.
		return a.Hook.Open(a.Name, filepath.Join(filepath.Dir(c.Listen.Socket), "sidecar-hooks")), nil
	case "webhook":
		return a.Webhook.Open(), nil
	case "agent":
		return localAgent{socket: a.Agent.Socket, dial: deps.Dial}, nil
	default:
		return nil, fmt.Errorf("told by %q, which is not one way", a.way())
	}
}
