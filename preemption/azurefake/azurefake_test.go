package azurefake

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const events = "/metadata/scheduledevents?api-version=2020-07-01"

var machine = Machine{Name: "WestNO_0", ID: "02aab8a4-74ef-476e-8182-f6d2ba4166a6", Size: "Standard_A1", Location: "westus", Priority: "Regular"}

func ask(s *Service, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func get(s *Service) string {
	return ask(s, http.MethodGet, events, "", "Metadata", "true").Body.String()
}

// same tells whether two texts are the same JSON.
func same(t *testing.T, got, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

// TestAgainstTheDocumentation holds the fake to the responses that Microsoft prints as examples.
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#example-responses
func TestAgainstTheDocumentation(t *testing.T) {
	s := New(machine)
	if got, want := get(s), `{"DocumentIncarnation": 1, "Events": []}`; !same(t, got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	id := s.Schedule(Event{
		ID: "C7061BAC-AFDC-4513-B24B-AA5F13A16123", Type: "Freeze", Resources: []string{"WestNO_0", "WestNO_1"}, Seconds: 5,
		NotBefore:   time.Date(2026, 4, 12, 0, 26, 58, 0, time.FixedZone("", 7200)),
		Description: "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
	})
	shown := `{"DocumentIncarnation": 2, "Events": [{
		"EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123", "EventStatus": "Scheduled", "EventType": "Freeze",
		"ResourceType": "VirtualMachine", "Resources": ["WestNO_0", "WestNO_1"], "NotBefore": "Sat, 11 Apr 2026 22:26:58 GMT",
		"Description": "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
		"EventSource": "Platform", "DurationInSeconds": 5}]}`
	if got := get(s); !same(t, got, shown) {
		t.Errorf("got %s, want %s", got, shown)
	}
	s.WriteISO()
	if got, want := get(s), strings.Replace(shown, "Sat, 11 Apr 2026 22:26:58 GMT", "2026-04-11T22:26:58Z", 1); !same(t, got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	s.Start(id)
	started := strings.NewReplacer(`"Scheduled"`, `"Started"`, "Sat, 11 Apr 2026 22:26:58 GMT", "", `: 2,`, `: 3,`).Replace(shown)
	if got := get(s); !same(t, got, started) {
		t.Errorf("got %s, want %s", got, started)
	}
	s.Remove(id)
	if got, want := get(s), `{"DocumentIncarnation": 4, "Events": []}`; !same(t, got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	got := ask(s, http.MethodGet, "/metadata/instance/compute?api-version=2021-02-01&format=json", "", "Metadata", "true").Body.String()
	want := `{"name":"WestNO_0","vmId":"02aab8a4-74ef-476e-8182-f6d2ba4166a6","vmSize":"Standard_A1","location":"westus","zone":"","priority":"Regular"}`
	if !same(t, got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRules(t *testing.T) {
	s := New(machine)
	id := s.Schedule(Event{Type: "Reboot"})
	start := `{"StartRequests": [{"EventId": "` + id + `"}]}`
	for name, row := range map[string]struct {
		got  *httptest.ResponseRecorder
		want int
	}{
		"list":               {ask(s, http.MethodGet, events, "", "Metadata", "true"), 200},
		"no header":          {ask(s, http.MethodGet, events, ""), 400},
		"bad header":         {ask(s, http.MethodGet, events, "", "Metadata", "yes"), 400},
		"through a proxy":    {ask(s, http.MethodGet, events, "", "Metadata", "true", "X-Forwarded-For", "10.0.0.1"), 400},
		"no version":         {ask(s, http.MethodGet, "/metadata/scheduledevents", "", "Metadata", "true"), 400},
		"unknown path":       {ask(s, http.MethodGet, "/metadata/x?api-version=1", "", "Metadata", "true"), 404},
		"method not known":   {ask(s, http.MethodDelete, events, "", "Metadata", "true"), 405},
		"no body":            {ask(s, http.MethodPost, events, "", "Metadata", "true"), 400},
		"no request":         {ask(s, http.MethodPost, events, "{}", "Metadata", "true"), 400},
		"unknown event":      {ask(s, http.MethodPost, events, `{"StartRequests":[{"EventId":"x"}]}`, "Metadata", "true"), 400},
		"start, no header":   {ask(s, http.MethodPost, events, start), 400},
		"start":              {ask(s, http.MethodPost, events, start, "Metadata", "true"), 200},
		"start once more":    {ask(s, http.MethodPost, events, start, "Metadata", "true"), 200},
		"compute, no GET":    {ask(s, http.MethodPost, "/metadata/instance/compute?api-version=1", "", "Metadata", "true"), 404},
		"compute":            {ask(s, http.MethodGet, "/metadata/instance/compute?api-version=1", "", "Metadata", "true"), 200},
		"compute, no header": {ask(s, http.MethodGet, "/metadata/instance/compute?api-version=1", ""), 400},
	} {
		if row.got.Code != row.want {
			t.Errorf("%s: got %d, want %d", name, row.got.Code, row.want)
		}
	}
	if got := s.Approved(); !reflect.DeepEqual(got, []string{id, id}) {
		t.Errorf("acknowledged %v, want %s twice", got, id)
	}
	if got := get(s); !strings.Contains(got, `"Started"`) {
		t.Errorf("got %s, want it started", got)
	}
	s.Fail(http.StatusGone)
	if got := ask(s, http.MethodGet, events, "", "Metadata", "true"); got.Code != http.StatusGone {
		t.Errorf("failing: got %d, want 410", got.Code)
	}
	s.Fail(0)
	s.Change("nothing of that name", func(*Event) { t.Error("it was changed") })
}

func TestArming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(machine)
		s.Arm(2 * time.Minute)
		for _, patience := range []time.Duration{time.Second, 119 * time.Second, 121 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, events, nil)
			r.Header.Set("Metadata", "true")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			cancel()
			if answered, want := w.Body.Len() > 0, patience > 2*time.Minute; answered != want {
				t.Errorf("after %v: answered %v, want %v", patience, answered, want)
			}
		}
		start := time.Now()
		if get(s); time.Since(start) > 0 {
			t.Errorf("answered after %v once it was on", time.Since(start))
		}
	})
}
