package coordinator

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// One window ends at the moment when another comes near: no blocks are sent to the other's machine.
func TestAppointmentsThatTakeTurns(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.beat()
		b.beat()
		at := time.Now().Add(2 * time.Hour).Truncate(time.Hour)
		near := at.Add(50 * time.Minute) // 70 minutes before b's
		w := []*api.MaintenanceWindow{
			{Machines: []*api.Machine{{Hostname: "z"}}, StartNanoseconds: at.UnixNano(), DurationNanoseconds: new(int64(50 * time.Minute))},
			{Machines: []*api.Machine{{Hostname: "b"}}, StartNanoseconds: at.Add(2 * time.Hour).UnixNano()},
		}
		if _, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: w}); err != nil {
			v.Fatal(err)
		}
		for time.Now().Before(near.Add(time.Minute)) {
			time.Sleep(10 * time.Second)
			a.beat()
			b.beat()
		}
		a.version = 0
		if got := a.live(1).Peers; len(got) != 0 {
			v.Errorf("69 minutes before b's machine is worked on, blocks are sent to %v", got)
		}
	})
}

// An operator who gives a node that the host files ordered away another time takes it over from the files; one who repeats the call without
// a time does not.
func TestOperatorTakesANodeFromTheHostFiles(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Hosts.Exclude = filepath.Join(t.TempDir(), "exclude")
		exclude := func(names string) {
			if err := os.WriteFile(v.cfg.Hosts.Exclude, []byte("# nobody\n"+names), 0o600); err != nil {
				v.Fatal(err)
			}
			if _, err := v.operator().RefreshNodes(v.Context(), &api.RefreshNodesRequest{Graceful: true}); err != nil {
				v.Fatal(err)
			}
		}
		if err := os.WriteFile(v.cfg.Hosts.Exclude, []byte("# nobody\n"), 0o600); err != nil {
			v.Fatal(err)
		}
		v.restart()
		a, b := v.agent("a"), v.agent("b")
		a.beat()
		b.beat()
		exclude("a b")
		v.order(time.Hour, "a")
		if _, err := v.operator().Decommission(v.Context(), &api.DecommissionRequest{Nodes: []string{"b"}}); err != nil { // looks again
			v.Fatal(err)
		}
		exclude("")
		v.is("a", registry.Decommissioning)
		v.is("b", registry.Active)
	})
}

// mesos posts a request as an operator's script would, and returns the answer.
func (v *town) mesos(path, body string, as *certs.Name) (int, string) {
	v.Helper()
	return v.send(http.MethodPost, path, as, http.Header{"Content-Type": {"application/json"}}, strings.NewReader(body))
}

// The example of Mesos's documentation, and what Mesos's master refuses, word for word as in its test suite.
func TestMaintenancePages(t *testing.T) {
	const (
		one   = `{"machine_ids": [{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "machine2", "ip": "10.0.0.2"}], "unavailability": {"start": {"nanoseconds": 1443830400000000000}, "duration": {"nanoseconds": 3600000000000}}}`
		two   = `{"machine_ids": [{"hostname": "machine3", "ip": "10.0.0.3"}], "unavailability": {"start": {"nanoseconds": "1443834000000000000"}}}`
		plan  = `{"windows": [` + one + `, ` + two + `]}`
		first = `[{"hostname": "machine1", "ip": "10.0.0.1"}]`
	)
	eve := &certs.Name{Role: certs.RoleOperator, Name: "eve"}
	inTown(t, func(v *town) {
		for i, c := range []struct {
			path, body string
			as         *certs.Name
			want       int
			words      string
		}{
			{"/maintenance/schedule", plan, nil, 401, "certificate"},
			{"/maintenance/schedule", plan, &certs.Name{Role: certs.RoleNode, Name: "a"}, 403, "operator's certificate"},
			{"/machine/down", first, eve, 400, "machine machine1 (10.0.0.1): it is not in the maintenance schedule"},
			{"/maintenance/schedule", `{"windows": [{"machine_ids": [], "unavailability": {"start": {"nanoseconds": 0}}}]}`, eve, 400, "windows[0]: has no machines"},
			{"/maintenance/schedule", `{"windows": [` + two + `, ` + two + `]}`, eve, 400, "windows[1].machine_ids[0]: machine machine3 (10.0.0.3) is named twice"},
			{"/maintenance/schedule", strings.Replace(plan, "3600000000000", "-1", 1), eve, 400, "windows[0].unavailability.duration: -1 ns is negative"},
			{"/maintenance/schedule", strings.Replace(plan, `, "unavailability": {"start": {"nanoseconds": "1443834000000000000"}}`, "", 1), eve, 400, "windows[1].unavailability.start.nanoseconds: is missing"},
			{"/maintenance/schedule", strings.Replace(plan, "10.0.0.3", "10.0.0", 1), eve, 400, `windows[1].machine_ids[0].ip: \"10.0.0\" is no IP address`},
			{"/maintenance/schedule", `{"windows": [{"machine_ids": [{}], "unavailability": {"start": {"nanoseconds": 0}}}]}`, eve, 400, "has neither hostname nor ip"},
			{"/machine/down", `{"hostname": "a"}`, eve, 400, "the body: the whole: want an array, got object, at line 1, column 2"},
			{"/maintenance/schedule", "{\n\"windws\": []}", eve, 400, `unknown field \"windws\", at line 2, column 9`},
			{"/maintenance/schedule", strings.Replace(plan, `"machine_ids": [{"hostname": "machine3"`, "\n\"start\": 0, "+`"machine_ids": [{"hostname": "machine3"`, 1), eve, 400, `unknown field \"start\", at line 2, column 8`}, // known elsewhere
			{"/machine/down", `[{"hostname": "machine1", "ipp": "10.0.0.1"}]`, eve, 400, `unknown field \"ipp\", at line 1, column 32`},
			{"/maintenance/schedule", "{\n\"windows\": 5}", eve, 400, "line 2, column 13"},
			{"/maintenance/schedule", "{\n\"windows\": ]", eve, 400, "line 2, column 13"},
			{"/maintenance/schedule", "{\n\"windows\": [", eve, 400, "the JSON breaks off, at line 2, column 13"},
			{"/maintenance/schedule", " ", eve, 400, "the body: there is no JSON in it"},
			{"/maintenance/schedule", plan + "x", eve, 400, "something follows"},
			{"/maintenance/schedule", strings.Replace(plan, "1443830400000000000", "-5", 1), eve, 200, ""}, // any past is as good
			{"/maintenance/schedule", strings.Replace(plan, "1443830400000000000", "1443830400.5", 1), eve, 400, "nanoseconds: 1443830400.5 is no whole number of 64 bits, at line "},
			{"/maintenance/schedule", strings.Replace(plan, "1443830400000000000", "1e19", 1), eve, 400, "nanoseconds: 1e19 is no whole number of 64 bits"},
			{"/maintenance/schedule", strings.Replace(plan, "1443830400000000000", "1.4438304e+18", 1), eve, 200, ""}, // as Python writes time.time()*1e9
			{"/maintenance/schedule", plan, eve, 200, ""},
			{"/maintenance/schedule", "null\n", eve, 400, "the whole: want an object, got null"},
			{"/machine/down", "null", eve, 400, "the whole: want an array, got null"},
			{"/machine/down", `[]`, eve, 400, "no machine is named"},
			{"/machine/down", `[{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "MACHINE1", "ip": "10.0.0.1"}]`, eve, 400, "named twice"},
			{"/machine/down", `[{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "machine9"}]`, eve, 400, "machine machine9: it is not in"},
			{"/machine/up", first, eve, 400, "it is not DOWN"},
			{"/machine/down", first, &certs.Name{Role: certs.RoleApp, Name: "spark"}, 403, "operator's certificate"},
			{"/machine/down", first, eve, 200, ""},
			{"/machine/down", first, eve, 400, "it is DOWN already"},
			{"/maintenance/schedule", `{}`, eve, 400, "machine machine1 (10.0.0.1) is DOWN and not in it"}, // Mesos's form of an empty schedule
			{"/maintenance/schedule", `{"windows": []}`, eve, 400, "machine machine1 (10.0.0.1) is DOWN and not in it"},
		} {
			if code, body := v.mesos(c.path, c.body, c.as); code != c.want || !strings.Contains(body, c.words) || code == 200 && body != "" {
				v.Errorf("%d: %s: got %d %s, want %d with %q", i, c.path, code, body, c.want, c.words)
			}
		}
		var asked []string
		for _, r := range v.audit(0, "") {
			asked = append(asked, r.Asked+" "+r.Who+" "+strings.SplitN(r.Outcome, ":", 2)[0])
		}
		if want := []string{
			"maintenance down operator:eve refused", "maintenance schedule operator:eve done", "maintenance schedule operator:eve done", "maintenance schedule operator:eve done", "maintenance down operator:eve refused",
			"maintenance up operator:eve refused", "maintenance down operator:eve done", "maintenance down operator:eve refused", "maintenance schedule operator:eve refused",
			"maintenance schedule operator:eve refused",
		}; !slices.Equal(asked, want) {
			v.Errorf("the audit has %q", asked)
		}
		v.restart()
		node := &certs.Name{Role: certs.RoleNode, Name: "a"}
		const status = `{"draining_machines":[{"id":{"hostname":"machine2","ip":"10.0.0.2"},"statuses":[]},{"id":{"hostname":"machine3","ip":"10.0.0.3"},"statuses":[]}],` +
			`"down_machines":[{"hostname":"machine1","ip":"10.0.0.1"}]}`
		if code, body := v.get("/maintenance/status", node); code != 200 || strings.TrimSpace(body) != status {
			v.Errorf("status: got %d %s", code, body)
		}
		_, body := v.get("/maintenance/schedule", node)
		var got, want any
		if json.Unmarshal([]byte(body), &got) != nil || json.Unmarshal([]byte(strings.Replace(plan, `"1443834000000000000"`, `1443834000000000000`, 1)), &want) != nil || written(t, got) != written(t, want) {
			v.Errorf("schedule: got %s", body)
		}
		if code, body := v.mesos("/machine/up", first, eve); code != 200 {
			v.Errorf("up: got %d %s", code, body)
		}
		if _, body := v.get("/maintenance/schedule", node); strings.Count(body, "machine_ids") != 2 || strings.Contains(body, "machine1") {
			v.Errorf("after up: got %s", body)
		}
	})
}

// Ten minutes before its machine's appointment a node leaves by itself, with the time until then; for an hour before that no blocks are sent
// to it. A node that an operator recommissioned stays, and one that comes back leaves again.
func TestNodeLeavesInTimeForItsAppointment(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		peers := func() bool {
			b.version = 0
			return slices.ContainsFunc(b.live(1).Peers, func(p *api.Peer) bool { return p.Node == "a" })
		}
		alive := func(d time.Duration) {
			for range int(d / (10 * time.Second)) {
				time.Sleep(10 * time.Second)
				a.beat()
				b.beat()
			}
		}
		a.beat()
		b.beat()
		alive(20 * time.Second)
		at := time.Now().Add(2 * time.Hour)
		plan := &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{{
			Machines: []*api.Machine{{Hostname: "a"}, {Hostname: "c"}}, StartNanoseconds: at.UnixNano(), DurationNanoseconds: new(int64(time.Hour)),
		}}}
		if _, err := v.operator().ScheduleMaintenance(v.Context(), plan); err != nil {
			v.Fatal(err)
		}
		n := v.seen("a")
		if n.Maintenance != registry.ModeDraining || n.Schedulable || n.State != string(registry.Active) || !n.MaintenanceStart.AsTime().Equal(at) || n.MaintenanceDuration.AsDuration() != time.Hour {
			v.Errorf("scheduled: got %v", n)
		}
		if !peers() {
			v.Error("two hours before, it is no peer")
		}
		alive(51 * time.Minute)
		if peers() || v.seen("a").State != string(registry.Active) {
			v.Errorf("69 minutes before, it is a peer, or %s", v.seen("a").State)
		}
		alive(time.Until(at.Add(-10*time.Minute)) + 20*time.Second)
		v.is("a", registry.Decommissioning)
		d := a.beat().Directive
		if left := time.Until(at); d == nil || (d.Remaining.AsDuration()-left).Abs() > time.Second || !strings.Contains(d.Reason, "maintenance begins at") {
			v.Errorf("it is told %v, %s before", d, left)
		}
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		alive(time.Minute)
		v.is("a", registry.Active)
		v.order(time.Minute, "a")
		a.goodbye("inc-1", &api.ManifestEntry{Id: "spark/-/x", Outcome: "moved", Peer: "b"})
		reply, err := v.operator().GetMaintenance(v.Context(), &api.GetMaintenanceRequest{})
		if err != nil || len(reply.Machines) != 2 || len(reply.Machines[0].Nodes) != 1 || reply.Machines[0].Nodes[0].Answer != "ACCEPT" || len(reply.Machines[1].Nodes) != 0 {
			v.Errorf("got %v (%v), want a's word", reply, err)
		}
		if now := reply.GetNow().AsTime(); !now.Equal(time.Now()) {
			v.Errorf("its clock shows %s, want %s: who asks reckons from it", now, time.Now())
		}
		v.restart()
		if _, err := v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: plan.Windows[0].Machines, Timeout: durationpb.New(time.Minute)}); err != nil {
			v.Fatal(err)
		}
		if n := v.seen("a"); n.Maintenance != registry.ModeDown || n.State != string(registry.Decommissioned) {
			v.Errorf("down: got %v", n)
		}
		v.refused(v.agent("c").tryRegister(), codes.FailedPrecondition, "its machine is DOWN for maintenance: lifeboat maintenance up")
	})
}
