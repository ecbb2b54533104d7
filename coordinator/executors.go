package coordinator

import (
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// mostExecutors bounds the executors of one node: it is far more than a machine has cores.
	mostExecutors = 1024

	// executorsAtOnce bounds the executors in one entry of the log. More events at once would push each other, and the events of their
	// nodes, out of the kept events.
	executorsAtOnce = registry.KeptEvents / 2
)

// executorsOf are the executors that still run by the node's last status.
func executorsOf(s *api.Status) (all []registry.Executor) {
	for _, w := range s.GetWorkloads() {
		if ended(w) {
			continue
		}
		if len(w.GetExecutors()) == 0 {
			all = append(all, registry.Executor{Workload: w.GetName()})
		}
		for _, e := range w.GetExecutors() {
			all = append(all, registry.Executor{Workload: w.GetName(), App: e.GetApp(), ID: e.GetId()})
		}
	}
	return all[:min(len(all), mostExecutors)]
}

// nameExecutors adds to c the executors on the nodes that c makes leave: the registry itself must not depend on heartbeats.
func (v *lives) nameExecutors(c registry.Command) registry.Command {
	switch c.Do {
	case registry.DoRegister, registry.DoAnnounce, registry.DoDecommission, registry.DoHosts, registry.DoTimeout, registry.DoGoodbye, registry.DoMachinesDown:
	default:
		return c
	}
	c.At = time.Now()
	var leave []string
	v.ledger.view(func(m *registry.Registry) { leave = m.Untold(c) })
	room, dropped := executorsAtOnce, 0
	for _, name := range leave {
		all := executorsOf(v.leases.read(name).status)
		if len(all) == 0 {
			continue
		}
		if c.Executors == nil {
			c.Executors = map[string][]registry.Executor{}
		}
		fit := all[:min(len(all), room)]
		c.Executors[name] = fit
		room, dropped = room-len(fit), dropped+len(all)-len(fit)
	}
	if dropped > 0 {
		v.log.Warn("too many executors leave at once: their schedulers are told of the nodes only", "executors", dropped)
	}
	return c
}

// tellLate tells of executors that were not known when their node began to leave: a new leader knows of none before the node's first
// beat.
func (v *lives) tellLate(n registry.Node, s *api.Status) error {
	if !n.Leaving() || n.Decommission.Told {
		return nil
	}
	all := executorsOf(s)
	if len(all) == 0 {
		return nil
	}
	_, err := v.do(registry.Command{Do: registry.DoTell, Nodes: []string{n.Name}, Incarnation: n.Incarnation, Executors: map[string][]registry.Executor{n.Name: all}})
	return err
}
