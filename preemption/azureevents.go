package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// maxEvents is far above the number of events that a scale set of 1000 machines, the largest, can have at once.
const maxEvents = 4000

// azureEvent is one of Azure's Scheduled Events that names this machine.
type azureEvent struct {
	id        string
	kind      Kind
	started   bool
	notBefore time.Time // zero: not said, or not to be read
	alone     bool      // no other machine is named
	reason    string
}

// azureKinds are the types of events, and the least notice that Microsoft gives of each. Preempt and Terminate are no
// appointments: the machine goes, and soon.
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-scheduling
var azureKinds = map[string]struct {
	kind  Kind
	least time.Duration
}{
	"preempt":   {KindPreempt, 30 * time.Second},
	"terminate": {KindTerminate, 5 * time.Minute},
	"redeploy":  {KindRedeploy, 10 * time.Minute},
	"reboot":    {KindReboot, 15 * time.Minute},
	"freeze":    {KindFreeze, 15 * time.Minute},
}

// leastNotice is the least notice that Azure gives of a kind; 0: not known.
func leastNotice(k Kind) time.Duration {
	for _, known := range azureKinds {
		if known.kind == k {
			return known.least
		}
	}
	return 0
}

// readAzureEvents reads the list of all events and returns those that name the machine called name. It passes over faults of
// events that clearly name only other machines. Any other fault is an error, which it returns with the events that it can
// read: those hold, and an event that is missing beside an error is not known to be gone.
func readAzureEvents(body []byte, name string) ([]azureEvent, error) {
	var doc struct {
		DocumentIncarnation *json.Number
		Events              []json.RawMessage
	}
	switch err := json.Unmarshal(body, &doc); {
	case err != nil:
		return nil, err
	case doc.Events == nil:
		return nil, errors.New("it is no list of events")
	case len(doc.Events) > maxEvents:
		return nil, fmt.Errorf("it has %d events, more than %d", len(doc.Events), maxEvents)
	case len(doc.Events) > 0 && name == "":
		return nil, fmt.Errorf("it has %d events that may or may not be for this machine, whose name is not known", len(doc.Events))
	}
	var ours []azureEvent
	var unread []error
	if doc.DocumentIncarnation == nil {
		unread = append(unread, errors.New("it is no whole list of events: it has no incarnation"))
	}
	for _, raw := range doc.Events {
		e, named, err := readAzureEvent(raw, name)
		at := slices.IndexFunc(ours, func(o azureEvent) bool { return o.id == e.id })
		switch {
		case err != nil:
			unread = append(unread, err)
		case !named:
		case at >= 0:
			unread = append(unread, fmt.Errorf("event %s is in it twice", e.id))
			if e.kind.severity() > ours[at].kind.severity() {
				ours[at] = e
			}
		default:
			ours = append(ours, e)
		}
	}
	return ours, errors.Join(unread...)
}

// readAzureEvent reads one event; named is false where it does not name this machine, or is over.
func readAzureEvent(raw []byte, name string) (e azureEvent, named bool, err error) {
	var doc struct {
		EventID, EventType string
		Resources          []string
		// Optional: the event counts even if these cannot be read.
		EventStatus, NotBefore, EventSource, Description, DurationInSeconds any
	}
	err = json.Unmarshal(raw, &doc) // reads on past a field of the wrong type
	if err == nil && doc.Resources == nil {
		err = errors.New("an event has no resources")
	}
	ours := func(resource string) bool { return strings.EqualFold(resource, name) } // Azure's names have no case
	switch {
	case len(doc.Resources) > 0 && !slices.ContainsFunc(doc.Resources, ours):
		return azureEvent{}, false, nil
	case err != nil:
		return azureEvent{}, false, err
	case len(doc.Resources) == 0:
		return azureEvent{}, false, nil
	case doc.EventID == "" || !isName(doc.EventID):
		return azureEvent{}, false, fmt.Errorf("event %.40q is for this machine, but that is no id", doc.EventID)
	case doc.EventType == "":
		return azureEvent{}, false, fmt.Errorf("event %s is for this machine, but has no type", doc.EventID)
	}
	e = azureEvent{
		id:        doc.EventID,
		kind:      KindMaintenance, // an unknown type: nobody should build on this machine, but nothing says that it goes
		notBefore: readNotBefore(doc.NotBefore),
		alone:     !slices.ContainsFunc(doc.Resources, func(r string) bool { return !ours(r) }),
		reason:    azureReason(doc.EventType, doc.EventSource, doc.Description, doc.DurationInSeconds),
	}
	if known, ok := azureKinds[strings.ToLower(doc.EventType)]; ok {
		e.kind = known.kind
	}
	status, _ := doc.EventStatus.(string)
	switch strings.ToLower(status) {
	case "started":
		e.started = true
	case "completed", "canceled", "cancelled":
		// Microsoft says that such an event is left out of the list, but its own mock sends these words.
		return azureEvent{}, false, nil
	}
	return e, true, nil
}

// notBeforeLayouts are the ways in which NotBefore was seen to be written, all in UTC: Microsoft documents the first, its
// mock writes ISO 8601.
var notBeforeLayouts = []string{
	"Mon, _2 Jan 2006 15:04:05 GMT", "Mon, _2 Jan 2006 15:04:05 UTC", time.RFC1123Z,
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
}

// readNotBefore reads the time before which an event does not start. Zero: there is none ("" once it has started), or the
// format is an unknown one, which must not keep an event that takes this machine away from being heard.
func readNotBefore(said any) time.Time {
	text, _ := said.(string)
	for _, layout := range notBeforeLayouts {
		if at, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return at
		}
	}
	return time.Time{}
}

// azureReason describes an event for people.
func azureReason(typ string, source, description, seconds any) string {
	reason := "Azure " + typ
	if by, _ := source.(string); by != "" {
		reason += " by " + by
	}
	if s, _ := seconds.(float64); s > 0 { // -1: not known
		reason += fmt.Sprintf(" for %g s", s)
	}
	if text, _ := description.(string); text != "" {
		reason += ": " + text
	}
	reason = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, reason)
	return string([]rune(reason)[:min(300, len([]rune(reason)))])
}
