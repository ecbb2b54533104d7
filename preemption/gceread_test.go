package preemption

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

func TestGCEUpcomingMaintenanceSpellings(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	soon := now.Add(time.Hour)
	for _, row := range []struct {
		name, body string
		want       Notice // without an ID: none
		fails      bool
	}{
		{name: "none", body: "NONE\n"},
		{name: "none as JSON", body: `"NONE"`},
		{name: "empty object", body: " {} "},
		{name: "none yet", body: `{ "error": "no notifications have been received yet, try again later" }`},
		{name: "complete", body: `{"maintenance_status":"COMPLETE","window_start_time":"2026-11-22T13:00:00Z"}`},
		{
			name: "snake", body: `{"can_reschedule":"FALSE","latest_window_start_time":"2026-11-22T15:00:00Z","maintenance_status":"PENDING",` +
				`"type":"SCHEDULED","window_start_time":"2026-11-22T05:00:00.000-08:00","window_end_time":"2026-11-22T16:00:00Z"}`,
			want: Notice{ID: "upcoming-maintenance/announced", Kind: KindMaintenance, Deadline: soon, Appointed: true, Reason: "host maintenance is announced"},
		},
		{
			name: "camel", body: `{"canReschedule":true,"maintenanceStatus":"PENDING","maintenanceType":"UNSCHEDULED","windowStartTime":"2026-11-22T13:00:00Z",` +
				`"maintenanceReasons":["PLANNED_UPDATE"]}`,
			want: Notice{ID: "upcoming-maintenance/announced", Kind: KindMaintenance, Deadline: soon, Appointed: true, Reason: "host maintenance is announced, unscheduled"},
		},
		{
			name: "only the latest start", body: `{"maintenanceStatus":"PENDING","windowStartTime":"1970-01-01T00:00:00Z","latestWindowStartTime":"2026-11-22T13:00:00Z"}`,
			want: Notice{ID: "upcoming-maintenance/announced", Kind: KindMaintenance, Deadline: soon, Appointed: true, Reason: "host maintenance is announced"},
		},
		{
			name: "no time", body: `{"maintenanceStatus":"PENDING"}`,
			want: Notice{ID: "upcoming-maintenance/announced", Kind: KindMaintenance, Reason: "host maintenance is announced"},
		},
		{
			name: "window is open", body: `{"maintenanceStatus":"PENDING","windowStartTime":"2026-11-22T03:00:00Z"}`,
			want: Notice{ID: "upcoming-maintenance/begun", Kind: KindMaintenance, Reason: "host maintenance is under way"},
		},
		{
			name: "ongoing", body: `{"maintenance_status":"ONGOING","window_start_time":"2026-11-22T11:00:00Z"}`,
			want: Notice{ID: "upcoming-maintenance/begun", Kind: KindMaintenance, Reason: "host maintenance is under way"},
		},
		{name: "another error", body: `{"error":"backend is down"}`, fails: true},
		{name: "another error object", body: `{"error":{"code":500}}`, fails: true},
		{name: "status not known", body: `{"maintenance_status":"MAYBE"}`, fails: true},
		{name: "no status", body: `{"window_start_time":"2026-11-22T13:00:00Z"}`, fails: true},
		{name: "bad time", body: `{"maintenance_status":"PENDING","window_start_time":"soon"}`, fails: true},
		{name: "null", body: "null", fails: true},
		{name: "a list", body: "[]", fails: true},
		{name: "nothing", body: "", fails: true},
		{name: "a page", body: "<html>", fails: true},
	} {
		got, err := readUpcoming([]byte(row.body), now)
		if (err != nil) != row.fails || len(got) > 1 || (len(got) == 1) != (row.want.ID != "") {
			t.Errorf("%s: got %+v, %v", row.name, got, err)
			continue
		}
		if len(got) == 1 {
			if n := got[0]; !n.Deadline.Equal(row.want.Deadline) {
				t.Errorf("%s: got deadline %v, want %v", row.name, n.Deadline, row.want.Deadline)
			}
			got[0].Deadline = row.want.Deadline
			if got[0] != row.want {
				t.Errorf("%s: got %+v, want %+v", row.name, got[0], row.want)
			}
		}
	}
}

func TestGCEWords(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	stop := &stopping{clock: new(serviceClock)}
	for _, row := range []struct {
		read  func([]byte, time.Time) ([]Notice, error)
		body  string
		want  Kind // empty: none
		fails bool
	}{
		{readPreempted, "FALSE", "", false},
		{readPreempted, "TRUE\n", KindPreempt, false},
		{readPreempted, "true", KindPreempt, false},
		{readPreempted, "", "", true},
		{readPreempted, "NONE", "", true},
		{readMaintenanceEvent, "NONE", "", false},
		{readMaintenanceEvent, "MIGRATE_ON_HOST_MAINTENANCE", KindMigrate, false},
		{readMaintenanceEvent, "TERMINATE_ON_HOST_MAINTENANCE\n", KindStop, false},
		{readMaintenanceEvent, "", "", true},
		{readMaintenanceEvent, "FALSE", "", true},
		{stop.read, "", "", false},
		{stop.read, "UNKNOWN", "", false},
		{stop.read, "STOP_STATE_UNSPECIFIED", "", false},
		{stop.read, "PENDING_STOP", KindStop, false},
		{stop.read, "STOPPING", KindStop, false},
		{stop.read, "<html>", "", true},
	} {
		got, err := row.read([]byte(row.body), now)
		if (err != nil) != row.fails || (len(got) == 1) != (row.want != "") || len(got) == 1 && got[0].Kind != row.want {
			t.Errorf("%q: got %+v, %v, want %q", row.body, got, err, row.want)
		}
	}
}

func TestGCEStopDeadline(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		since, within string
		want          time.Duration // from now; 0: none
	}{
		{"2026-11-22T12:00:00Z", "600s", 10 * time.Minute},
		{"2026-11-22T03:59:00.5-08:00\n", "600", 9*time.Minute + 500*time.Millisecond},
		{"2026-11-22T11:59:00Z", "1h0m0s", 59 * time.Minute},
		{"2026-11-22T13:00:00Z", "600s", 10 * time.Minute}, // asked for in the future
		{"2026-11-22T11:00:00Z", "600s", 0},                // over, and the machine is still there
		{"2026-11-22T12:00:00Z", "0", 0},
		{"2026-11-22T12:00:00Z", "-5s", 0},
		{"2026-11-22T12:00:00Z", "800000h", 0},
		{"2026-11-22T12:00:00Z", "", 0},
		{"", "600s", 0},
	} {
		want := now.Add(row.want)
		if row.want == 0 {
			want = time.Time{}
		}
		if got := stopDeadline([]byte(row.since), []byte(row.within), now); !got.Equal(want) {
			t.Errorf("%q and %q: got %v, want %v", row.since, row.within, got, want)
		}
	}
}

func FuzzGCEBodies(f *testing.F) {
	for _, body := range []string{
		"FALSE", "TRUE", "NONE", "TERMINATE_ON_HOST_MAINTENANCE", "MIGRATE_ON_HOST_MAINTENANCE", "PENDING_STOP", "", "{}", "null",
		`{"maintenanceStatus":"PENDING","windowStartTime":"2026-11-22T13:00:00Z"}`, `{"maintenance_status":"ONGOING","error":{}}`, "600s",
		`{"error":"no notifications have been received yet, try again later"}`, `{"maintenanceStatus":"PENDING","windowStartTime":"0001-01-01T00:00:00Z"}`,
	} {
		f.Add([]byte(body), []byte("2026-11-22T12:00:00Z"), []byte("600s"))
	}
	f.Fuzz(func(t *testing.T, body, since, within []byte) {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		stop := &stopping{clock: new(serviceClock), get: func(_ context.Context, path string) (answer, error) {
			if path == "shutdown-details/max-duration" {
				return answer{body: within, found: true}, nil
			}
			return answer{body: since, found: true}, nil
		}}
		if by := stopDeadline(since, within, now); !by.IsZero() && (!by.After(now) || by.Sub(now) > 24*time.Hour) {
			t.Errorf("%q and %q: the stop is by %v", since, within, by)
		}
		stop.ahead(t.Context(), body)
		for path, read := range map[string]func([]byte, time.Time) ([]Notice, error){
			keyPreempted: readPreempted, keyMaintenance: readMaintenanceEvent, keyStopState: stop.read, keyUpcoming: readUpcoming,
		} {
			b := newBelief(slog.New(slog.DiscardHandler), SourceGCE, path, time.Second, 1, read)
			news, err := b.hear(body, true, nil, now)
			if err != nil && len(news) > 0 {
				t.Errorf("%q: heard %+v in spite of %v", body, news, err)
			}
			for _, n := range news {
				if n.Withdrawn || n.Kind.severity() < 0 || !b.owns(n.ID) || n.Source != SourceGCE || n.Appointed != (n.Kind == KindMaintenance && !n.Deadline.IsZero()) {
					t.Errorf("%q: heard %+v", body, n)
				}
			}
		}
	})
}

// Some machines have an hour from TERMINATE to their end. They are not back in service after ten minutes: the key says NONE
// when they are.
func TestTerminateStandsAsLongAsTheKeySaysSo(t *testing.T) {
	said, err := readMaintenanceEvent([]byte("TERMINATE_ON_HOST_MAINTENANCE"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	said[0].Source, said[0].SeenAt = SourceGCE, time.Now()
	if i := Open(said[0]); !i.OutlivedAt().IsZero() {
		t.Errorf("outlived at %s, want never", i.OutlivedAt())
	}
}
