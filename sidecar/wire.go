package sidecar

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
)

// stateWaiting is what the status shows of an action that was told nothing yet.
const stateWaiting = "waiting"

// status is what the socket shows.
func (s *Sidecar) status() *api.AgentStatus {
	status := &api.AgentStatus{
		Sidecar: true, Node: s.cfg.Node.Name, Version: s.deps.Version, StartedAt: timestamppb.New(s.started), Provider: s.cfg.Cloud.Resolve(),
		Status: &api.Status{Notice: s.apiNotice()},
	}
	for _, h := range s.notices.Health() {
		health := &api.SourceHealth{Source: h.Source, Path: h.Path, Trouble: h.Trouble}
		if !h.LastGood.IsZero() {
			health.LastGood = durationpb.New(time.Since(h.LastGood))
		}
		status.Sources = append(status.Sources, health)
	}
	p, open := s.incidents.Open()
	if open {
		for _, n := range p.Incident.InForce() {
			status.Notices = append(status.Notices, &api.NoticeInForce{
				Source: n.Source, Id: n.ID, Kind: string(n.Kind), Remaining: remaining(n.Deadline), Age: durationpb.New(time.Since(n.SeenAt)),
				Reason: n.Reason, Appointed: n.Appointed, Stance: string(n.Stance),
			})
		}
		_, changes := s.incidents.Stance() // and not when the machine will have outlived its deadline: it goes no further then
		status.Changes = remaining(changes)
	}
	for _, a := range s.actions {
		t := p.Work.Told[a.name] // of the zero page: nothing
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
	i := p.Incident
	stance, _ := s.stance(p)
	return &api.Notice{
		Incident: i.ID, Kind: string(i.Kind()), Source: i.Source(), Stance: string(stance), Remaining: remaining(i.Deadline()), Reason: i.Reason(),
	}
}

// remaining is the time to an instant on the wire: absent where none is known.
func remaining(instant time.Time) *durationpb.Duration {
	if instant.IsZero() {
		return nil
	}
	return durationpb.New(time.Until(instant))
}
