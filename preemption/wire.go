package preemption

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// Remaining is the time to an instant, for the wire; nil: no instant is known.
func Remaining(instant time.Time) *durationpb.Duration {
	if instant.IsZero() {
		return nil
	}
	return durationpb.New(time.Until(instant))
}

// Wire is the incident as coordinator and sockets are told it, with how far the node goes. A node that only copies ahead or steps aside,
// as for a maintenance, has no deadline that binds it; it tells when what was announced begins.
func (i *Incident) Wire(stance Stance) *api.Notice {
	deadline := i.Deadline()
	if g := i.gravest(); deadline.IsZero() && !g.Withdrawn {
		deadline = g.Deadline
	}
	return &api.Notice{
		Incident: i.ID, Kind: string(i.Kind()), Source: i.Source(), Stance: string(stance), Remaining: Remaining(deadline), Reason: i.Reason(),
	}
}

// Tell fills into a status what the sources know, how well they know it, and when the stance changes by itself (zero: it
// does not).
func Tell(s *api.AgentStatus, sources []Health, i Incident, changes time.Time) {
	for _, h := range sources {
		w := &api.SourceHealth{Source: h.Source, Path: h.Path, Trouble: h.Trouble}
		if !h.LastGood.IsZero() {
			w.LastGood = durationpb.New(time.Since(h.LastGood))
		}
		s.Sources = append(s.Sources, w)
	}
	for _, n := range i.InForce() {
		s.Notices = append(s.Notices, &api.NoticeInForce{
			Source: n.Source, Id: n.ID, Kind: string(n.Kind), Remaining: Remaining(n.Deadline), Age: durationpb.New(time.Since(n.SeenAt)),
			Reason: n.Reason, Appointed: n.Appointed, Stance: string(n.Stance),
		})
	}
	s.Changes = Remaining(changes)
}
