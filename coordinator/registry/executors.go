package registry

import (
	"time"
)

// EventExecutor tells an app's scheduler that one of its executors goes with its node. In the same decision it follows the event by
// which the node begins to leave, or is ended.
const EventExecutor = "ExecutorDecommissioned"

// Executor is one executor of an app on a node, or a whole workload if its executors are not known.
type Executor struct {
	Workload string `json:"workload"`
	App      string `json:"app,omitempty"`
	ID       string `json:"id,omitempty"`
}

// Untold are the nodes that c would make leave, or end, and whose executors no event has told of yet.
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

// untold reports whether n is leaving, or was ended at that instant, and no event has told of its executors.
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

// tellExecutors tells of each executor, once for a decommission.
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
