package coordinator

import (
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// evExecutor tells the scheduler of an app that a part of it goes with its node. It follows the event by which the node
// begins to leave, or is ended, in the same decision.
const evExecutor = "ExecutorDecommissioned"

const (
	// mostExecutors bounds what one node has told of: far more than cores.
	mostExecutors = 1024

	// executorsAtOnce bounds one entry of the log. More would push each other, and the events of their nodes, out of what
	// is kept.
	executorsAtOnce = keptEvents / 2
)

// executor is a part of an app on a node, or a whole workload where no app knows its parts.
type executor struct {
	Workload string `json:"workload"`
	App      string `json:"app,omitempty"`
	ID       string `json:"id,omitempty"`
}

// executorsOf are those that are there still, as the node last said.
func executorsOf(s *api.Status) (all []executor) {
	for _, w := range s.GetWorkloads() {
		if ended(w) {
			continue
		}
		if len(w.GetExecutors()) == 0 {
			all = append(all, executor{Workload: w.GetName()})
		}
		for _, e := range w.GetExecutors() {
			all = append(all, executor{Workload: w.GetName(), App: e.GetApp(), ID: e.GetId()})
		}
	}
	return all[:min(len(all), mostExecutors)]
}

// nameExecutors puts into c what runs on the nodes that it makes leave: the machine must not look at heartbeats.
func (f *fleet) nameExecutors(c command) command {
	switch c.Do {
	case doRegister, doAnnounce, doDecommission, doHosts, doTimeout, doGoodbye, doMachinesDown:
	default:
		return c
	}
	c.At = time.Now()
	var leave []string
	f.ledger.view(func(m *machine) { leave = m.untold(c) })
	room, dropped := executorsAtOnce, 0
	for _, name := range leave {
		all := executorsOf(f.leases.read(name).status)
		if len(all) == 0 {
			continue
		}
		if c.Executors == nil {
			c.Executors = map[string][]executor{}
		}
		fit := all[:min(len(all), room)]
		c.Executors[name] = fit
		room, dropped = room-len(fit), dropped+len(all)-len(fit)
	}
	if dropped > 0 {
		f.log.Warn("too many executors leave at once: their schedulers are told of the nodes only", "executors", dropped)
	}
	return c
}

// tellLate tells of executors that were not known when their node began to leave: a leader that has just taken over knows
// of none before the node beats.
func (f *fleet) tellLate(n node, s *api.Status) error {
	if !n.leaving() || n.Decommission.Told {
		return nil
	}
	all := executorsOf(s)
	if len(all) == 0 {
		return nil
	}
	_, err := f.do(command{Do: doTell, Nodes: []string{n.Name}, Incarnation: n.Incarnation, Executors: map[string][]executor{n.Name: all}})
	return err
}

// untold are the nodes that c makes leave and whose executors nobody has been told of.
func (m *machine) untold(c command) (names []string) {
	t, err := m.try(c)
	if err != nil || len(t.events) == 0 {
		return nil
	}
	changed := map[string]bool{}
	for _, e := range t.events {
		changed[e.Node] = true
	}
	for _, n := range t.nodes {
		if changed[n.Name] && n.untold(c.At) {
			names = append(names, n.Name)
		}
	}
	return names
}

// untold says whether n is leaving, or was ended at that instant, and its executors were not told of.
func (n node) untold(at time.Time) bool {
	d := n.Decommission
	switch {
	case d == nil || d.Told:
		return false
	case n.leaving():
		return true
	}
	return d.EndedAt.Equal(at) && (d.Outcome == drained || d.Outcome == timedOut || d.Outcome == forced)
}

// tellExecutors tells of each, once for a decommission.
func (s *step) tellExecutors() {
	all := s.cmd.Executors[s.name]
	if len(s.events) == 0 && s.cmd.Do != doTell || len(all) == 0 || !s.node.untold(s.cmd.At) {
		return
	}
	d := *s.node.Decommission
	d.Told = true
	s.node.Decommission = &d
	for _, e := range all {
		s.tell(evExecutor, "workload", e.Workload, "app", e.App, "executor", e.ID, "decommission", d.ID)
	}
}
