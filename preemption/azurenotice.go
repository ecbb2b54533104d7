package preemption

import (
	"fmt"
	"maps"
	"time"
)

// settled is how long after a boot the event that caused it may still be listed: Microsoft puts the time from Started to the
// end of an event at 10 minutes, and it takes a machine some time to boot.
const settled = 15 * time.Minute

// sighting is what is known of an event so far. It keeps what the list says only once.
type sighting struct {
	first     time.Time // when it was first heard of
	deadline  time.Time // zero: not known
	appointed bool
	behind    bool // the event was under way when this machine had just booted
}

// Believe takes the notices that were known before a restart: they are not given again, and are withdrawn if the service no
// longer shows them. Call it before the first Next. It passes over withdrawn notices and those of other sources.
func (a *Azure) Believe(notices ...Notice) {
	for _, n := range notices {
		if n.Source == SourceAzure && !n.Withdrawn {
			a.seen[n.ID] = sighting{n.SeenAt, n.Deadline, n.Appointed, n.Kind == KindMaintenance}
		}
	}
	a.poller.Believe(notices...)
}

// read turns the list of events into notices for this machine; with an error, those of the events that it could read.
func (a *Azure) read(body []byte, now time.Time) ([]Notice, error) {
	name, trouble := a.ownName()
	events, err := readAzureEvents(body, name)
	switch {
	case err != nil && trouble != "" && name == "":
		err = fmt.Errorf("read %s: %w (%s): give it in the configuration", pathEvents, err, trouble)
	case err != nil:
		err = fmt.Errorf("read %s: %w", pathEvents, err)
	}
	seen := make(map[string]sighting, len(events))
	if err != nil { // an event that could not be read may still be listed
		seen = maps.Clone(a.seen)
	}
	notices := make([]Notice, 0, len(events))
	ahead, word := a.clock.differs()
	for _, e := range events {
		if !e.notBefore.IsZero() {
			e.notBefore = e.notBefore.Add(-ahead)
			e.reason += word
		}
		id := pathEvents + "/" + e.id
		s, again := a.seen[id]
		if !again {
			up := a.cfg.Uptime()
			s = sighting{first: now, behind: e.started && up > 0 && up < settled}
		}
		n := s.update(e, now)
		n.ID = id
		seen[id] = s
		notices = append(notices, n)
	}
	a.seen = seen
	return notices, err
}

// update takes in what the list says of an event, and returns the notice for it, without its id.
//
// A listed event is never stale, for Azure takes it off the list when it is over. So a time that has passed when the event
// is first heard of means that the event may start at any moment, and a machine that is still there long after it has not
// outlived the event.
func (s *sighting) update(e azureEvent, now time.Time) Notice {
	kind := e.kind
	switch {
	case e.started:
		// The event has begun: at its time, or earlier because somebody approved it or, at a failure of the host, without
		// notice.
		s.deadline = earliest(s.deadline, now)
		if s.behind && kind == KindRedeploy {
			// This machine came back from the redeployment. Shorter interruptions may follow until the event is off the
			// list, but there is nothing to leave for.
			kind = KindMaintenance
		}
	case !e.notBefore.IsZero():
		s.deadline, s.appointed = latest(e.notBefore, s.first), kind.Appointed()
	case s.deadline.IsZero() && leastNotice(kind) > 0:
		s.deadline = s.first.Add(leastNotice(kind)) // at best: not an appointment to wait for
	}
	return Notice{Kind: kind, Deadline: s.deadline, Appointed: s.appointed, Stands: true, Reason: e.reason}
}
