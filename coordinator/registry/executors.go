package registry

import (
	"time"
)

// EventExecutor tells the scheduler of an app that a part of it goes with its node. It follows the event by which the node
// begins to leave, or is ended, in the same decision.
const EventExecutor = "ExecutorDecommissioned"

// Executor is a part of an app on a node, or a whole workload where no app knows its parts.
type Executor struct {
	Workload string `json:"workload"`
	App      string `json:"app,omitempty"`
	ID       string `json:"id,omitempty"`
}

// Untold are the nodes that c makes leave and whose executors nobody has been told of.
func (m *Registry) Untold(c Command) (names []string) {
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
func (n Node) untold(at time.Time) bool {
	d := n.Decommission
	switch {
	case d == nil || d.Told:
		return false
	case n.Leaving():
		return true
	}
	return d.EndedAt.Equal(at) && (d.Outcome == Drained || d.Outcome == TimedOut || d.Outcome == Forced)
}

// tellExecutors tells of each, once for a decommission.
func (s *step) tellExecutors() {
	all := s.cmd.Executors[s.name]
	if len(s.events) == 0 && s.cmd.Do != DoTell || len(all) == 0 || !s.node.untold(s.cmd.At) {
		return
	}
	d := *s.node.Decommission
	d.Told = true
	s.node.Decommission = &d
	for _, e := range all {
		s.tell(EventExecutor, "workload", e.Workload, "app", e.App, "executor", e.ID, "decommission", d.ID)
	}
}
