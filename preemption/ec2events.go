package preemption

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// pathScheduled answers with a list of events, which are announced days ahead. Each event's id is the path, a slash, and
// AWS's own id for it.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html
const (
	pathScheduled  = "events/maintenance/scheduled"
	scheduledEvery = time.Minute

	// eventTime is the layout of times there: the service writes the zone out as GMT.
	eventTime = "2 Jan 2006 15:04:05 GMT"
)

// readScheduled reads a list of events and returns notices for the active ones. If it cannot read an event it returns an
// error with the notices of the others: these hold, and an event that is missing beside an error is not known to be gone.
func readScheduled(body []byte, now time.Time) ([]Notice, error) {
	var docs []json.RawMessage
	if err := json.Unmarshal(body, &docs); err != nil {
		return nil, fmt.Errorf("read %s: %w", pathScheduled, err)
	}
	if docs == nil {
		return nil, fmt.Errorf("read %s: answered %q, which is no list", pathScheduled, body)
	}
	var active []Notice
	var unread []error
	for i, doc := range docs {
		switch n, is, err := readEvent(doc, now); {
		case err != nil:
			unread = append(unread, fmt.Errorf("read %s: event %d of %d: %w", pathScheduled, i+1, len(docs), err))
		case is:
			active = append(active, n)
		}
	}
	return active, errors.Join(unread...)
}

// readEvent reads {"Code": "instance-stop", "EventId": "instance-event-0d59937288b749b32", "State": "active",
// "NotBefore": "21 Jan 2019 09:00:43 GMT", "NotAfter": "21 Jan 2019 09:17:23 GMT", "Description": "..."}, and tells whether
// the event is active.
func readEvent(doc []byte, now time.Time) (n Notice, active bool, err error) {
	var e struct{ Code, Description, EventID, State, NotBefore, NotAfter string }
	if err := json.Unmarshal(doc, &e); err != nil {
		return Notice{}, false, err
	}
	if e.EventID == "" || !isName(e.EventID) {
		return Notice{}, false, fmt.Errorf("id %.40q is no name", e.EventID)
	}
	switch e.State {
	case "active":
	case "completed", "canceled":
		return Notice{}, false, nil
	default:
		return Notice{}, false, fmt.Errorf("state %.40q of %s is not known", e.State, e.EventID)
	}
	from, err := time.Parse(eventTime, e.NotBefore)
	if err != nil || from.IsZero() {
		return Notice{}, false, fmt.Errorf("start %.40q of %s is no time", e.NotBefore, e.EventID)
	}
	n = Notice{
		ID: pathScheduled + "/" + e.EventID, Kind: eventKind(e.Code), Deadline: from, Appointed: true,
		Reason: fmt.Sprintf("EC2 scheduled event %.40q: %.200q", e.Code, cmp.Or(e.Description, e.EventID)),
	}
	// From its start on the event can come at any moment until its end, which the service need not give. Without an end the
	// event stands until it is completed or canceled, and a node that first hears of it then hurries.
	if now.After(from) {
		n.Appointed = false
		if until, err := time.Parse(eventTime, e.NotAfter); err == nil && until.After(from) {
			n.Deadline = until
		} else {
			n.Deadline, n.Stands = now.Add(leastAhead), true
		}
	}
	return n, true, nil
}

// eventKind is what an event does to the machine. An unknown code counts as work on the host: the node then copies ahead,
// which is right if the event takes the disks and costs little if it does not.
func eventKind(code string) Kind {
	switch code {
	case "instance-stop":
		return KindStop
	case "instance-retirement":
		return KindRetirement
	case "instance-reboot", "system-reboot":
		return KindReboot
	default: // system-maintenance
		return KindMaintenance
	}
}
