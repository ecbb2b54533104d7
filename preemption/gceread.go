package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// preemptLead is what a Spot VM has from the signal to the power switch, at best.
	// https://cloud.google.com/compute/docs/instances/spot#preemption-process
	preemptLead = 30 * time.Second

	// maintenanceLead is how long before a host's maintenance the key changes. With some GPUs that is an hour, but nothing
	// here tells which machines have those, and a minute is safe for all; the key keeps its value until the maintenance.
	// https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice
	maintenanceLead = time.Minute
)

// word returns a value of one word, in upper case and without spaces around it.
func word(body []byte) string { return strings.ToUpper(strings.TrimSpace(string(body))) }

// readPreempted reads FALSE or TRUE. The key gives no time.
func readPreempted(body []byte, now time.Time) ([]Notice, error) {
	switch w := word(body); w {
	case "FALSE":
		return nil, nil
	case "TRUE":
		return []Notice{{
			ID: keyPreempted, Kind: KindPreempt, Deadline: now.Add(preemptLead),
			Reason: "Google preempts the machine",
		}}, nil
	default:
		return nil, fmt.Errorf("read %s: %.40q is not known", keyPreempted, w)
	}
}

// readMaintenanceEvent reads what is about to happen to the machine because of maintenance of its host. A migration and a
// stop have ids of their own: when the migration takes the place of the stop, the stop is withdrawn.
func readMaintenanceEvent(body []byte, now time.Time) ([]Notice, error) {
	switch w := word(body); w {
	case "NONE":
		return nil, nil
	case "MIGRATE_ON_HOST_MAINTENANCE":
		return []Notice{{ID: keyMaintenance + "/migrate", Kind: KindMigrate, Reason: "host maintenance: the machine moves alive"}}, nil
	case "TERMINATE_ON_HOST_MAINTENANCE":
		return []Notice{{
			ID: keyMaintenance + "/terminate", Kind: KindStop, Deadline: now.Add(maintenanceLead), Stands: true,
			Reason: "host maintenance: the machine is stopped",
		}}, nil
	default:
		return nil, fmt.Errorf("read %s: %.40q is not known", keyMaintenance, w)
	}
}

// siblingLimit bounds the questions for the deadline of a stop: the stop is announced without a deadline rather than late.
// Once it is announced they may take slowLimit.
const siblingLimit = 100 * time.Millisecond

// stopping reads shutdown-details/stop-state: a person or program stops the machine, which has a graceful shutdown set up.
// While the stop is pending, two more keys give the deadline.
// https://cloud.google.com/compute/docs/reference/rest/v1/instances (resourceStatus.shutdownDetails)
type stopping struct {
	get   func(ctx context.Context, path string) (answer, error)
	clock *serviceClock
	by    time.Time // zero: not known
	asked bool      // the deadline was asked for, in vain or not
	goes  bool      // the stop is no longer pending: the machine goes down
}

// ahead asks for the time by which the machine stops, unless that is known or the machine does not stop.
func (s *stopping) ahead(ctx context.Context, body []byte) {
	switch w := word(body); {
	case !stops(w):
		s.by, s.asked, s.goes = time.Time{}, false, false
		return
	case w == stateStopping:
		if !s.goes { // the graceful time was ended early: what is left is what any machine has
			s.goes, s.by = true, earliest(s.by, time.Now().Add(preemptLead))
		}
		return
	case !s.by.IsZero():
		return
	}
	limit := siblingLimit
	if s.asked {
		limit = slowLimit
	}
	s.asked = true
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	since, err := s.get(ctx, "shutdown-details/request-timestamp")
	if err != nil {
		return
	}
	within, err := s.get(ctx, "shutdown-details/max-duration")
	if err != nil {
		return
	}
	ahead, _ := s.clock.differs()
	if by := stopDeadline(since.body, within.body, time.Now().Add(ahead)); !by.IsZero() {
		s.by = by.Add(-ahead)
	}
}

func (s *stopping) read(body []byte, _ time.Time) ([]Notice, error) {
	switch w := word(body); {
	case stops(w):
		_, word := s.clock.differs()
		if s.by.IsZero() || s.goes {
			word = "" // the deadline has no time of the service's in it
		}
		return []Notice{{ID: keyStopState, Kind: KindStop, Deadline: s.by, Reason: "the machine is being stopped or deleted" + word}}, nil
	case w == "" || w == "NONE" || strings.HasSuffix(w, "UNKNOWN") || strings.HasSuffix(w, "UNSPECIFIED"):
		return nil, nil
	default:
		return nil, fmt.Errorf("read %s: %.40q is not known", keyStopState, w)
	}
}

// stops tells whether a stop state is one from which the machine goes down.
func stops(w string) bool { return w == "PENDING_STOP" || w == stateStopping }

const stateStopping = "STOPPING"

// stopDeadline adds the longest duration of the stop, which Google bounds by an hour, to the time at which it was asked for,
// by the service's clock. The deadline is never later than if the stop had been asked for now. One that has passed while the
// machine lives counts as unknown.
func stopDeadline(since, within []byte, now time.Time) time.Time {
	const longest = 24 * time.Hour // room for Google to allow more
	from, err := time.Parse(time.RFC3339, strings.TrimSpace(string(since)))
	if err != nil {
		return time.Time{}
	}
	text := strings.TrimSpace(string(within))
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 || most > longest {
		return time.Time{}
	}
	by := earliest(from.Add(most), now.Add(most))
	if !by.After(now) {
		return time.Time{}
	}
	return by
}

// upcoming is the announcement of a maintenance.
type upcoming struct{ Status, Type, Start, Latest, Error string }

// readUpcoming reads the announcement of a later maintenance. "Nothing" is NONE, an empty object, an object that says that
// there was no notification yet, or 404, depending on the machine's type. A maintenance that has begun, or may begin at any
// moment, has an id of its own and no deadline: the announced time has passed, and the other keys say when the machine must
// go.
// https://cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event
// https://cloud.google.com/tpu/docs/view-maintenance-notifications
func readUpcoming(body []byte, now time.Time) ([]Notice, error) {
	if w := strings.Trim(word(body), `"`); w == "NONE" {
		return nil, nil
	}
	doc, empty, err := unpackUpcoming(body)
	switch status := word([]byte(doc.Status)); {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", keyUpcoming, err)
	case empty, status == "COMPLETE", strings.Contains(strings.ToLower(doc.Error), "no notification"):
		return nil, nil
	case doc.Error != "":
		return nil, fmt.Errorf("read %s: %.80q", keyUpcoming, doc.Error)
	case status != "PENDING" && status != "ONGOING":
		return nil, fmt.Errorf("read %s: status %.40q is not known", keyUpcoming, status)
	default:
		at, err := windowStart(doc.Start)
		if err == nil && at.IsZero() {
			at, err = windowStart(doc.Latest)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", keyUpcoming, err)
		}
		n := Notice{
			ID: keyUpcoming + "/announced", Kind: KindMaintenance, Deadline: at, Appointed: !at.IsZero(),
			Reason: "host maintenance is announced",
		}
		if status == "ONGOING" || !at.IsZero() && !at.After(now) {
			n = Notice{ID: keyUpcoming + "/begun", Kind: KindMaintenance, Reason: "host maintenance is under way"}
		}
		if word([]byte(doc.Type)) == "UNSCHEDULED" {
			n.Reason += ", unscheduled"
		}
		return []Notice{n}, nil
	}
}

// unpackUpcoming takes the fields out of an object, whose names may be written like windowStartTime or like
// window_start_time.
func unpackUpcoming(body []byte) (doc upcoming, empty bool, _ error) {
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return upcoming{}, false, err
	}
	if fields == nil {
		return upcoming{}, false, errors.New("it is no object")
	}
	for name, value := range fields {
		text, isText := value.(string)
		switch strings.ToLower(strings.ReplaceAll(name, "_", "")) {
		case "maintenancestatus":
			doc.Status = text
		case "type", "maintenancetype":
			doc.Type = text
		case "windowstarttime":
			doc.Start = text
		case "latestwindowstarttime":
			doc.Latest = text
		case "error":
			doc.Error = text
			if !isText {
				doc.Error = fmt.Sprint(value)
			}
		}
	}
	return doc, len(fields) == 0, nil
}

// windowStart reads a time. Zero, for none: the text is empty, or a time in 1970.
func windowStart(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Unix() <= 24*60*60 {
		return time.Time{}, err
	}
	return at, nil
}
