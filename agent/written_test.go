package agent

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// What an agent has done about a notice is written as it was: the package may be upgraded, or taken back, while a node leaves. An agent that
// missed a field would drain again, or stop a workload a second time.
func TestJournalIsWrittenAsBefore(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	someone := []workloads.Identity{{PID: 7, Started: 8, Boot: "b"}}
	for _, s := range []struct {
		is, read any
		text     string
	}{
		{&page{
			Incident: preemption.Incident{ID: "inc-1", Notices: []preemption.Notice{{
				Source: "ec2", ID: "spot", Kind: preemption.KindTerminate, Deadline: at, SeenAt: at, Reason: "r", Appointed: true, Stands: true,
				Stance: preemption.StanceDrain, LeftAt: at, Withdrawn: true,
			}}},
			Begun: true, Closed: "c", Clock: preemption.Moment{Wall: at, Boot: "b", SinceBoot: 9},
			Work: work{
				Drained: &manifest.Summary{Started: at, Finished: at, Moved: inventory.Count{Blocks: 1, Bytes: 2}, Lost: inventory.Count{Blocks: 3, Bytes: 4}, Skipped: inventory.Count{Blocks: 5, Bytes: 6}},
				Told:    true, Kept: true, Again: true, Undone: true, Unfinished: []string{"u"},
			},
		}, new(page), `{"incident":{"id":"inc-1","notices":[{"source":"ec2","id":"spot","kind":"terminate","deadline":"2026-11-21T12:00:00Z","seen_at":"2026-11-21T12:00:00Z",` +
			`"reason":"r","appointed":true,"stands":true,"stance":"drain","left_at":"2026-11-21T12:00:00Z","withdrawn":true}]},"begun":true,"work":{"drained":{"Started":"2026-11-21T12:00:00Z",` +
			`"Finished":"2026-11-21T12:00:00Z","Moved":{"blocks":1,"bytes":2},"Lost":{"blocks":3,"bytes":4},"Skipped":{"blocks":5,"bytes":6}},"unfinished":["u"],` +
			`"told":true,"kept":true,"again":true,"undone":true},"closed":"c","clock":{"wall":"2026-11-21T12:00:00Z","boot":"b","since_boot":9}}`},
		{&attentionFile{Boot: "b", Workloads: map[string]attended{"engine": {
			Word: workloads.Word{Phase: workloads.PhaseNoticed, Node: "n", Incident: "inc-1", Kind: "terminate", Source: "ec2", Stance: "drain", Deadline: at, Reason: "r"},
			Lead: new(time.Minute), Arrived: true, GivenUp: true, Trouble: "t", Incident: "inc-1", Processes: someone, Asked: someone, Stopping: true, Killed: true,
		}}}, new(attentionFile), `{"boot":"b","workloads":{"engine":{"word":{"phase":"noticed","node":"n","incident":"inc-1","kind":"terminate","source":"ec2","stance":"drain",` +
			`"deadline":"2026-11-21T12:00:00Z","remaining_seconds":null,"reason":"r"},"lead":60000000000,"arrived":true,"given_up":true,"trouble":"t","incident":"inc-1",` +
			`"processes":[{"pid":7,"started":8,"boot":"b"}],"asked":[{"pid":7,"started":8,"boot":"b"}],"stopping":true,"killed":true}}}`},
		{&machine{Instance: "i", Product: "p", ID: "m", Key: "k"}, new(machine), `{"instance":"i","product":"p","machine_id":"m","key":"k"}`},
	} {
		got, err := json.Marshal(s.is)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != s.text {
			t.Errorf("got\n%s, want\n%s", got, s.text)
		}
		if err := json.Unmarshal([]byte(s.text), s.read); err != nil || !reflect.DeepEqual(s.read, s.is) {
			t.Errorf("%s is read as %+v (%v)", s.text, s.read, err)
		}
	}
}
