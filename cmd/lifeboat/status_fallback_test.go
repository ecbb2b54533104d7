package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// An agent's status says, in 100 columns, that its fallback takes nothing, why, and for how long; the JSON has the whole error.
func TestStatusShowsTheFallback(t *testing.T) {
	said := "write: forbidden (AccessDenied: as the test has it): the agent needs s3:PutObject, s3:GetObject and s3:AbortMultipartUpload"
	for _, row := range []struct {
		fallback *api.Fallback
		line     string
		json     string
	}{
		{nil, "", `null`},
		{&api.Fallback{Name: "spill"}, "fallback     spill, not tried yet", `{"name":"spill","tried_seconds":null,"trouble":"","since_seconds":null,"doubt":"","room_bytes":null}`},
		{
			&api.Fallback{Name: "spill", Tried: durationpb.New(4 * time.Minute), Since: durationpb.New(time.Hour)},
			"fallback     spill, would take blocks, tried 4m0s ago", `{"name":"spill","tried_seconds":240,"trouble":"","since_seconds":3600,"doubt":"","room_bytes":null}`,
		},
		{
			&api.Fallback{Name: "share", Tried: durationpb.New(4 * time.Minute), Since: durationpb.New(time.Hour), RoomBytes: new(int64(5 << 30))},
			"fallback     share, would take blocks, with room for 5.0 GiB, tried 4m0s ago", `{"name":"share","tried_seconds":240,"trouble":"","since_seconds":3600,"doubt":"","room_bytes":5368709120}`,
		},
		{
			&api.Fallback{Name: "spill", Tried: durationpb.New(4 * time.Minute), Since: durationpb.New(time.Hour), Doubt: "/s is not mounted"},
			"fallback     spill, would take blocks, and MAY NOT OUTLIVE THIS MACHINE: /s is not mounted",
			`{"name":"spill","tried_seconds":240,"trouble":"","since_seconds":3600,"doubt":"/s is not mounted","room_bytes":null}`,
		},
		{
			&api.Fallback{Name: "spill", Tried: durationpb.New(time.Second), Since: durationpb.New(2 * time.Minute), Trouble: said},
			"fallback     spill, TAKES NOTHING for 2m0s: write: forbidden (AccessDenied", `{"name":"spill","tried_seconds":1,"trouble":"` + said + `","since_seconds":120,"doubt":"","room_bytes":null}`,
		},
	} {
		s := &api.AgentStatus{Node: "host-a", Coordinator: "10.0.0.1:7411", Fallback: row.fallback}
		var w strings.Builder
		if err := printAgent(&w, s); err != nil {
			t.Fatal(err)
		}
		found := false
		for line := range strings.Lines(w.String()) {
			found = found || strings.HasPrefix(line, row.line) && strings.HasPrefix(line, "fallback")
			if n := show.Columns(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if found != (row.line != "") {
			t.Errorf("want a line %q in\n%s", row.line, w.String())
		}
		if got, err := json.Marshal(agentToJSON(s, time.Now()).Fallback); err != nil || string(got) != row.json {
			t.Errorf("got %s, %v, want %s", got, err, row.json)
		}
	}
}
