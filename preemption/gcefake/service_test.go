package gcefake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/compute/metadata"
)

var machine = Instance{ID: "4520031799277581759", MachineType: "n2-standard-4", Zone: "us-central1-a", Spot: true}

// TestAgainstGooglesClient asks the fake with Google's own client, so that it agrees not only with ourselves.
func TestAgainstGooglesClient(t *testing.T) {
	fake := New(machine)
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	client := metadata.NewClient(server.Client())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if got, err := client.ZoneWithContext(ctx); err != nil || got != machine.Zone {
		t.Errorf("zone: got %q, %v, want %q", got, err, machine.Zone)
	}
	for path, want := range map[string]string{
		"id": machine.ID, "machine-type": "projects/123456789012/machineTypes/n2-standard-4", "scheduling/preemptible": "TRUE",
		"preempted": "FALSE", "maintenance-event": "NONE", "maintenance-event?alt=json": `"NONE"`,
	} {
		if got, err := client.GetWithContext(ctx, "instance/"+path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"shutdown-details/stop-state", "upcoming-maintenance?alt=json", "nothing"} {
		if got, err := client.GetWithContext(ctx, "instance/"+path); !isNotDefined(err) {
			t.Errorf("%s: got %q, %v, want that it is not defined", path, got, err)
		}
	}
	fake.Upcoming(`{"maintenance_status":"PENDING"}`)
	if got, err := client.GetWithContext(ctx, "instance/upcoming-maintenance?alt=json"); err != nil || got != `{"maintenance_status":"PENDING"}` {
		t.Errorf("upcoming-maintenance: got %q, %v", got, err)
	}
}

// TestGooglesClientHearsOfAChange lets Google's client wait for changes, and end when the key goes.
func TestGooglesClientHearsOfAChange(t *testing.T) {
	fake := New(machine)
	fake.Stop(time.Minute)
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	client := metadata.NewClient(server.Client())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	enough := errors.New("enough")
	var heard []string
	err := client.SubscribeWithContext(ctx, "instance/maintenance-event", func(_ context.Context, v string, ok bool) error {
		switch heard = append(heard, v); v {
		case "NONE":
			go fake.Maintenance("MIGRATE_ON_HOST_MAINTENANCE")
			return nil
		default:
			return enough
		}
	})
	if !errors.Is(err, enough) || strings.Join(heard, " ") != "NONE MIGRATE_ON_HOST_MAINTENANCE" {
		t.Errorf("heard %q, %v", heard, err)
	}

	heard = nil
	err = client.SubscribeWithContext(ctx, "instance/shutdown-details/stop-state", func(_ context.Context, v string, ok bool) error {
		if heard = append(heard, v); ok {
			go fake.Withdraw()
		}
		return nil
	})
	if err != nil || strings.Join(heard, " ") != "PENDING_STOP " {
		t.Errorf("heard %q, %v, want the state and its end", heard, err)
	}
}

func isNotDefined(err error) bool {
	_, ok := errors.AsType[metadata.NotDefinedError](err)
	return ok
}

const base = "/computeMetadata/v1/instance/"

func get(fake *Service, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, base+path, nil)
	r.Header.Set("Metadata-Flavor", "Google")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	w := httptest.NewRecorder()
	fake.ServeHTTP(w, r)
	return w.Result()
}

// TestRules holds the fake to what Google documents.
// https://cloud.google.com/compute/docs/metadata/querying-metadata
func TestRules(t *testing.T) {
	fake := New(machine)
	failing := New(machine)
	failing.Fail(http.StatusServiceUnavailable)
	for name, row := range map[string]struct {
		got  *http.Response
		want int
	}{
		"as it should be":     {get(fake, "id"), 200},
		"no flavor":           {get(fake, "id", "Metadata-Flavor", ""), 403},
		"through a proxy":     {get(fake, "id", "X-Forwarded-For", "10.0.0.1"), 403},
		"unknown key":         {get(fake, "colour"), 404},
		"another tree":        {get(fake, "../project/project-id"), 404},
		"timeout is no count": {get(fake, "id?timeout_sec=soon"), 400},
		"failing":             {get(failing, "id"), 503},
	} {
		if row.got.StatusCode != row.want || row.got.Header.Get("Metadata-Flavor") != "Google" {
			t.Errorf("%s: got %d, flavor %q, want %d and Google", name, row.got.StatusCode, row.got.Header.Get("Metadata-Flavor"), row.want)
		}
	}
}

func TestWaitForChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := New(machine)
		tag := get(fake, "preempted").Header.Get("Etag")
		if tag == "" || tag == "0" || get(fake, "maintenance-event").Header.Get("Etag") == tag {
			t.Errorf("ETag %q, want one that only this value has", tag)
		}
		const waits = "preempted?wait_for_change=true&last_etag="
		for name, row := range map[string]struct {
			path   string
			during func()
			took   time.Duration
			want   string
		}{
			"same tag":       {waits + tag + "&timeout_sec=60", func() {}, time.Minute, "FALSE"},
			"zero":           {waits + "0&timeout_sec=60", func() {}, 0, "FALSE"},
			"another tag":    {waits + "x&timeout_sec=60", func() {}, 0, "FALSE"},
			"no tag":         {"preempted?wait_for_change=true&timeout_sec=60", func() {}, time.Minute, "FALSE"},
			"does not wait":  {"preempted?last_etag=" + tag, func() {}, 0, "FALSE"},
			"other change":   {waits + tag + "&timeout_sec=60", func() { fake.Maintenance("NONE?") }, time.Minute, "FALSE"},
			"change":         {waits + tag + "&timeout_sec=60", fake.Preempt, 10 * time.Second, "TRUE"},
			"change, no end": {waits + tag, fake.Preempt, 10 * time.Second, "TRUE"},
		} {
			timer := time.AfterFunc(10*time.Second, row.during)
			start := time.Now()
			resp := get(fake, row.path)
			took := time.Since(start)
			timer.Stop()
			body, _ := io.ReadAll(resp.Body)
			if took != row.took || string(body) != row.want || (resp.Header.Get("Etag") == tag) != (row.want == "FALSE") {
				t.Errorf("%s: got %q, ETag %q after %v, want %q after %v", name, body, resp.Header.Get("Etag"), took, row.want, row.took)
			}
			fake.Withdraw()
		}
		time.AfterFunc(time.Second, func() { fake.Fail(http.StatusServiceUnavailable) })
		if resp := get(fake, waits+tag+"&timeout_sec=60"); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a failing service answered %d to who waited", resp.StatusCode)
		}
	})
}
