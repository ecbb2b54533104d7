// Package gcefake is a small pretend metadata server of Google Compute Engine, for `lifeboat dev` and for tests.
//
// It asks for the header that the real server asks for, answers with ETags and lets a GET wait for a change, and is
// checked against Google's own Go client. It shows only what Lifeboat asks for, and listens nowhere: it is a handler.
package gcefake

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instance is the machine that the server pretends to describe. What is empty is answered with 404.
type Instance struct {
	ID          string
	MachineType string // n2-standard-4
	Zone        string // us-central1-a
	Spot        bool
	// Graceful says that the machine has a graceful shutdown set up: it shows a stop state before it is stopped.
	Graceful bool
}

// The keys that change.
const (
	preempted   = "preempted"
	maintenance = "maintenance-event"
	upcoming    = "upcoming-maintenance"
	stopState   = "shutdown-details/stop-state"
	stopWithin  = "shutdown-details/max-duration"
	stopSince   = "shutdown-details/request-timestamp"
)

// Service answers as the metadata server of one instance. It is safe for concurrent use.
type Service struct {
	idle map[string]string // what stands at the keys that change when no notice does

	mu      sync.Mutex // guards what follows
	values  map[string]string
	fail    int
	changed chan struct{} // closed at the next change
	attest  func(audience string) string
}

// New returns a server that shows no notice.
func New(i Instance) *Service {
	s := &Service{
		idle:    map[string]string{preempted: "FALSE", maintenance: "NONE"},
		values:  make(map[string]string),
		changed: make(chan struct{}),
	}
	if i.Graceful {
		s.idle[stopState] = "UNKNOWN"
	}
	for key, value := range map[string]string{
		"id": i.ID, "zone": path("zones", i.Zone), "machine-type": path("machineTypes", i.MachineType),
	} {
		if value != "" {
			s.values[key] = value
		}
	}
	s.values["scheduling/preemptible"] = strings.ToUpper(strconv.FormatBool(i.Spot))
	s.Withdraw()
	return s
}

// path is a name as the real server gives it, with the project's number before it.
func path(kind, name string) string {
	if name == "" {
		return ""
	}
	return "projects/123456789012/" + kind + "/" + name
}

// Preempt shows that the instance is preempted.
func (s *Service) Preempt() { s.show(map[string]string{preempted: "TRUE"}) }

// Maintenance shows a maintenance event: NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE.
func (s *Service) Maintenance(event string) { s.show(map[string]string{maintenance: event}) }

// Upcoming shows an announcement of maintenance, a JSON document. Machines differ in how they say that there is none, so
// every text is taken; the empty one is answered with 404.
func (s *Service) Upcoming(document string) { s.show(map[string]string{upcoming: document}) }

// Stop shows that somebody stops the instance, and that it may take so long to get ready.
func (s *Service) Stop(within time.Duration) {
	s.show(map[string]string{
		stopState:  "PENDING_STOP",
		stopWithin: strconv.Itoa(int(within.Seconds())) + "s",
		stopSince:  time.Now().UTC().Format(time.RFC3339Nano),
	})
}

// Withdraw takes every notice back.
func (s *Service) Withdraw() {
	now := make(map[string]string)
	for _, key := range []string{preempted, maintenance, upcoming, stopState, stopWithin, stopSince} {
		now[key] = s.idle[key]
	}
	s.show(now)
}

// Attest answers with what token returns where the identity token of the default service account stands. Without it there
// is no such account.
func (s *Service) Attest(token func(audience string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attest = token
}

// identity is a token for an audience, and the status of the answer.
func (s *Service) identity(query url.Values) (token string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fail != 0:
		return "", s.fail
	case s.attest == nil:
		return "", http.StatusNotFound
	case query.Get("audience") == "" || query.Get("format") != "full":
		return "", http.StatusBadRequest
	}
	return s.attest(query.Get("audience")), http.StatusOK
}

// Fail makes every answer the given status, also those that were waited for, until Fail(0).
func (s *Service) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = status
	s.wake()
}

// show sets keys to values, where an empty one stands for none.
func (s *Service) show(values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range values {
		if s.values[key] = value; value == "" {
			delete(s.values, key)
		}
	}
	s.wake()
}

// wake lets those who wait look again. The caller holds mu.
func (s *Service) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	w.Header().Set("Server", "Metadata Server for VM")
	query := r.URL.Query()
	wait, err := parseWait(query)
	switch key, isInstance := strings.CutPrefix(r.URL.Path, "/computeMetadata/v1/instance/"); {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed)
	case r.Header.Get("Metadata-Flavor") != "Google" || r.Header.Get("X-Forwarded-For") != "":
		refuse(w, http.StatusForbidden)
	case !isInstance:
		refuse(w, http.StatusNotFound)
	case err != nil:
		refuse(w, http.StatusBadRequest)
	case key == "service-accounts/default/identity":
		token, status := s.identity(query)
		if status != http.StatusOK {
			refuse(w, status)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, token)
	default:
		value, status := s.await(r.Context(), key, wait)
		if status != http.StatusOK {
			refuse(w, status)
			return
		}
		w.Header().Set("Etag", etag(value))
		if query.Get("alt") == "json" {
			w.Header().Set("Content-Type", "application/json")
			value = asJSON(key, value)
		} else {
			w.Header().Set("Content-Type", "application/text")
		}
		io.WriteString(w, value)
	}
}

// wait is how a GET wants to wait for a change.
type wait struct {
	wanted  bool
	last    string        // return at once where the value has another ETag; empty: wait for the next change
	timeout time.Duration // 0: for ever
}

func parseWait(query url.Values) (wait, error) {
	w := wait{wanted: strings.EqualFold(query.Get("wait_for_change"), "true"), last: query.Get("last_etag")}
	if text := query.Get("timeout_sec"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 {
			return wait{}, fmt.Errorf("timeout_sec %q is no count of seconds", text)
		}
		w.timeout = time.Duration(seconds) * time.Second
	}
	return w, nil
}

// await returns the value of a key once it is as the caller wants it, and the status of the answer.
func (s *Service) await(ctx context.Context, key string, w wait) (value string, status int) {
	var timeout <-chan time.Time
	if w.timeout > 0 {
		timeout = time.After(w.timeout)
	}
	for over := false; ; {
		s.mu.Lock()
		value, found := s.values[key]
		fail, changed := s.fail, s.changed
		s.mu.Unlock()
		if w.last == "" {
			w.last = etag(value)
		}
		switch {
		case fail != 0:
			return "", fail
		case !found:
			return "", http.StatusNotFound
		case !w.wanted, over, etag(value) != w.last:
			return value, http.StatusOK
		}
		select {
		case <-changed:
		case <-timeout:
			over = true
		case <-ctx.Done():
			return "", http.StatusServiceUnavailable // nobody reads it
		}
	}
}

// etag is the same for the same value, and never 0, which asks for an answer at once.
func etag(value string) string {
	sum := fnv.New64a()
	io.WriteString(sum, value)
	return fmt.Sprintf("%016x", sum.Sum64())
}

// asJSON is a value as alt=json gives it. An announcement is JSON, or nearly, as it is.
func asJSON(key, value string) string {
	if key == upcoming {
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}

// refuse answers with a page, not with JSON, as the real server does.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!DOCTYPE html>\n<html lang=en>\n<title>Error %d (%s)!!1</title>\n", status, http.StatusText(status))
}
