// Package azurefake is a small pretend Azure instance metadata service, for `lifeboat dev` and for tests.
//
// It answers as Microsoft documents Scheduled Events (400 without the Metadata header, events that vanish when they are
// over, a first question that waits) and describes one virtual machine. It listens nowhere: it is a handler.
package azurefake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Machine is the virtual machine that the service pretends to describe.
type Machine struct {
	Name     string `json:"name"`     // pool_24
	ID       string `json:"vmId"`     // 02aab8a4-74ef-476e-8182-f6d2ba4166a6
	Size     string `json:"vmSize"`   // Standard_E8ds_v5
	Location string `json:"location"` // westeurope
	Zone     string `json:"zone"`     // 2
	Priority string `json:"priority"` // Spot, Regular
}

// Event is one that Azure has scheduled. What is left empty by who schedules it is filled in.
type Event struct {
	ID          string
	Type        string    // Freeze, Reboot, Redeploy, Preempt, Terminate
	Resources   []string  // empty: the machine alone
	NotBefore   time.Time // zero: not said
	Description string
	Source      string // Platform, User
	Seconds     int    // of interruption; 0: not known

	started bool
}

// Service answers as the metadata service of one machine. It is safe for concurrent use.
type Service struct {
	machine Machine

	mu          sync.Mutex // guards what follows
	incarnation int
	events      []Event
	last        int // the number in the newest event's id
	iso         bool
	fail        int
	arming      time.Duration // how long a question must wait before the events are on; 0: they are
	approved    []string
	attest      func(nonce string) string
}

// New returns a service that shows no event.
func New(m Machine) *Service { return &Service{machine: m, incarnation: 1} }

// Schedule shows an event and returns its id.
func (s *Service) Schedule(e Event) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	if e.ID == "" {
		e.ID = fmt.Sprintf("C7061BAC-AFDC-4513-B24B-%012d", s.last)
	}
	if len(e.Resources) == 0 {
		e.Resources = []string{s.machine.Name}
	}
	if e.Source == "" {
		e.Source = "Platform"
	}
	s.events = append(s.events, e)
	s.incarnation++
	return e.ID
}

// Change lets change alter an event that is shown.
func (s *Service) Change(id string, change func(*Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(id, change)
}

// Start lets an event begin: from then on it says no time.
func (s *Service) Start(id string) {
	s.Change(id, func(e *Event) { e.started = true })
}

// Remove takes an event off the list: it is completed, or was cancelled before it began. The service does not say which.
func (s *Service) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(e Event) bool { return e.ID == id })
	s.incarnation++
}

// WriteISO makes the service write times by ISO 8601, as Microsoft's own mock does, in place of RFC 1123.
func (s *Service) WriteISO() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.iso = true
}

// Arm turns the events off until a question has waited for an answer for d. One that gives up sooner turns nothing on.
func (s *Service) Arm(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arming = d
}

// Fail makes every answer the given status, until Fail(0).
func (s *Service) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = status
}

// Approved returns the ids of the events that were acknowledged, each as often as it was.
func (s *Service) Approved() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.approved)
}

// Attest answers with what document returns where the attested document stands.
func (s *Service) Attest(document func(nonce string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attest = document
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fail, arming, attest := s.fail, s.arming, s.attest
	s.mu.Unlock()
	asked := r.URL.Query()
	switch {
	case fail != 0:
		refuse(w, fail)
	case !strings.EqualFold(r.Header.Get("Metadata"), "true"), r.Header.Get("X-Forwarded-For") != "", asked.Get("api-version") == "":
		refuse(w, http.StatusBadRequest)
	case r.URL.Path == "/metadata/instance/compute" && r.Method == http.MethodGet:
		write(w, s.machine)
	case r.URL.Path == "/metadata/attested/document" && r.Method == http.MethodGet && attest != nil:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(w, attest(asked.Get("nonce")))
	case r.URL.Path != "/metadata/scheduledevents":
		refuse(w, http.StatusNotFound)
	case r.Method == http.MethodPost:
		s.approve(w, r)
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed)
	default:
		if arming > 0 && !s.wait(r, arming) {
			return
		}
		s.list(w)
	}
}

// wait keeps a question waiting and turns the events on when it has; false: whoever asked went away.
func (s *Service) wait(r *http.Request, d time.Duration) bool {
	select {
	case <-r.Context().Done():
		return false
	case <-time.After(d):
		s.Arm(0)
		return true
	}
}

// wireEvent is an event as the service writes it.
type wireEvent struct {
	EventID           string `json:"EventId"`
	EventStatus       string
	EventType         string
	ResourceType      string
	Resources         []string
	NotBefore         string
	Description       string
	EventSource       string
	DurationInSeconds int
}

func (s *Service) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := struct {
		DocumentIncarnation int
		Events              []wireEvent
	}{s.incarnation, make([]wireEvent, 0, len(s.events))}
	for _, e := range s.events {
		shown := wireEvent{
			EventID: e.ID, EventStatus: "Scheduled", EventType: e.Type, ResourceType: "VirtualMachine", Resources: e.Resources,
			Description: e.Description, EventSource: e.Source, DurationInSeconds: e.Seconds,
		}
		if e.Seconds == 0 {
			shown.DurationInSeconds = -1
		}
		switch at := e.NotBefore.UTC(); {
		case e.started:
			shown.EventStatus = "Started"
		case at.IsZero():
		case s.iso:
			shown.NotBefore = at.Format(time.RFC3339)
		default:
			shown.NotBefore = at.Format(http.TimeFormat)
		}
		doc.Events = append(doc.Events, shown)
	}
	write(w, doc)
}

// approve answers a POST: events that are acknowledged begin at once. It may be repeated.
func (s *Service) approve(w http.ResponseWriter, r *http.Request) {
	var doc struct {
		StartRequests []struct {
			EventID string `json:"EventId"`
		}
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&doc); err != nil || len(doc.StartRequests) == 0 {
		refuse(w, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, start := range doc.StartRequests {
		if !slices.ContainsFunc(s.events, func(e Event) bool { return e.ID == start.EventID }) {
			refuse(w, http.StatusBadRequest)
			return
		}
	}
	for _, start := range doc.StartRequests {
		s.approved = append(s.approved, start.EventID)
		s.change(start.EventID, func(e *Event) { e.started = true })
	}
	w.WriteHeader(http.StatusOK)
}

// change alters an event. The caller holds mu.
func (s *Service) change(id string, change func(*Event)) {
	for i := range s.events {
		if s.events[i].ID == id {
			change(&s.events[i])
			s.incarnation++
			return
		}
	}
}

func write(w http.ResponseWriter, doc any) {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Write(text)
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q}`, http.StatusText(status))
}
