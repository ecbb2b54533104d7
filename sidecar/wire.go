package sidecar

import (
	"cmp"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/preemption"
)

// stateWaiting is the state that the status shows of an action that was told nothing yet.
const stateWaiting = "waiting"

// status is what the socket shows.
func (s *Sidecar) status() *api.AgentStatus {
	status := &api.AgentStatus{
		Sidecar: true, Node: s.cfg.Node.Name, Version: s.deps.Version, StartedAt: timestamppb.New(s.started), Provider: s.cfg.Cloud.Resolve(),
		Status: &api.Status{Notice: s.apiNotice()},
	}
	p, _ := s.incidents.Open()
	_, changes := s.incidents.Stance() // not s.stance, whose next change may be that the machine has outlived its deadline
	preemption.Tell(status, s.notices.Health(), p.Incident, changes)
	for _, a := range s.actions {
		t := p.Work.Told[a.name] // nothing, where no incident is open
		state := &api.ActionState{Name: a.name, Phase: string(t.Phase), State: cmp.Or(string(t.State), stateWaiting), Trouble: t.Trouble}
		if t.Took > 0 {
			state.Took = durationpb.New(t.Took)
		}
		status.Actions = append(status.Actions, state)
	}
	return status
}

// apiNotice is the open incident, nil when there is none.
func (s *Sidecar) apiNotice() *api.Notice {
	p, open := s.incidents.Open()
	if !open || p.Incident.Withdrawn() {
		return nil
	}
	stance, _ := s.stance(p)
	return p.Incident.Wire(stance)
}
