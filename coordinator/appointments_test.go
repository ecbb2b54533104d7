package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A node leaves at once for an appointment that has begun, even if an operator took it back when it left for an earlier one. For an
// appointment that is over it does not leave, and is treated like any other node.
func TestAppointmentsOfThePast(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		begins := func(node string, in time.Duration, long *int64, add bool) error {
			w := &api.MaintenanceWindow{Machines: []*api.Machine{{Hostname: node}}, StartNanoseconds: time.Now().Add(in).UnixNano(), DurationNanoseconds: long}
			_, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{w}, Add: add})
			return err
		}
		live := func() *api.HeartbeatReply {
			b.live(1)
			return a.live(1)
		}
		live()
		live()
		hour := new(int64(time.Hour))
		v.refused(begins("a", -time.Hour, hour, true), codes.InvalidArgument, "is over")
		v.refused(begins("a", 0, new(int64), true), codes.InvalidArgument, "is over")
		if err := begins("a", -time.Hour, hour, false); err != nil { // as Mesos's master
			v.Fatal(err)
		}
		live()
		if n := v.seen("a"); n.State != string(registry.Active) || !n.Schedulable || n.Maintenance != registry.ModeUp || n.MaintenanceStart != nil {
			v.Errorf("with an appointment that is over: got %v", n)
		}
		if code, body := v.get("/maintenance/status", &certs.Name{Role: certs.RoleNode, Name: "a"}); code != 200 || !strings.Contains(body, `"draining_machines":[{"id":{"hostname":"a"}`) {
			v.Errorf("its machine is in no schedule: %d %s", code, body)
		}
		for _, long := range []*int64{nil, hour} {
			for _, in := range []time.Duration{5 * time.Minute, 0, -time.Minute} {
				if err := begins("a", in, long, false); err != nil { // another
					v.Fatal(err)
				}
				d := live().Directive
				v.is("a", registry.Decommissioning)
				want := v.cfg.DecommissionTimeout
				if in > 0 {
					want = in
				}
				if left := d.GetRemaining().AsDuration(); left < want-2*time.Second || left > want {
					v.Errorf("%v after it has begun: %v are left, want %v", -in, left, want)
				}
				if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
					v.Fatal(err)
				}
				live()
				v.is("a", registry.Active) // it stays
			}
		}
	})
}

// A node leaves for its machine's appointment. An operator gives it another time, or orders it away anew, and then recommissions it: it stays.
func TestWhoIsKeptFromAnAppointmentStays(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		w := &api.MaintenanceWindow{Machines: []*api.Machine{{Hostname: "a"}}, StartNanoseconds: time.Now().Add(5 * time.Minute).UnixNano()}
		if _, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{w}}); err != nil {
			v.Fatal(err)
		}
		a.live(1)
		v.is("a", registry.Decommissioning)
		for range 2 {
			v.order(time.Hour, "a")
			if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
				v.Fatal(err)
			}
			a.live(2)
			v.is("a", registry.Active)
		}
		a.notice("inc-1", time.Hour)
		a.live(1)
		v.is("a", registry.Decommissioning)
		a.status.Notice = nil // it was only a rehearsal, say
		a.live(unsaidBeats + 1)
		v.is("a", registry.Active)
	})
}

// A machine gets another appointment in place of one that is over. If its appointment is still to come the request is refused, with the
// time and the way to move it; a machine that is DOWN is refused too.
func TestAnotherAppointment(t *testing.T) {
	inTown(t, func(v *town) {
		v.agent("a").beat()
		add := func(ctx context.Context, in, long time.Duration, names ...string) error {
			w := &api.MaintenanceWindow{StartNanoseconds: time.Now().Add(in).UnixNano(), DurationNanoseconds: new(long.Nanoseconds())}
			for _, name := range names {
				w.Machines = append(w.Machines, &api.Machine{Hostname: name})
			}
			_, err := v.operator().ScheduleMaintenance(ctx, &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{w}, Add: true})
			return err
		}
		expect := func(want string) {
			v.Helper()
			m, err := v.operator().GetMaintenance(v.Context(), &api.GetMaintenanceRequest{})
			if err != nil {
				v.Fatal(err)
			}
			var got []string
			for _, s := range m.Machines {
				begins := time.Until(time.Unix(0, m.Windows[s.Window].StartNanoseconds)).Round(time.Minute)
				got = append(got, s.Machine.Hostname+" "+s.Mode+" "+begins.String())
			}
			if said := strings.Join(got, ", "); said != want {
				v.Errorf("got %q, want %q", said, want)
			}
		}
		if err := add(v.Context(), 24*time.Minute, time.Minute, "a", "b", "c"); err != nil {
			v.Fatal(err)
		}
		v.refused(add(v.Context(), 48*time.Minute, time.Minute, "A"), codes.FailedPrecondition, "machine A has an appointment already, from ")
		call := metadata.AppendToOutgoingContext(v.Context(), api.CallHeader, "one")
		for range 2 { // the second is a retry by a caller that did not hear the answer
			if err := add(call, 24*time.Minute, time.Minute, "d"); err != nil {
				v.Fatal(err)
			}
		}
		down := &api.ChangeMachinesRequest{Machines: []*api.Machine{{Hostname: "b"}}}
		if _, err := v.operator().ChangeMachines(v.Context(), down); err != nil {
			v.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		v.refused(add(v.Context(), 24*time.Minute, time.Minute, "a", "b"), codes.FailedPrecondition, "machine b is DOWN: lifeboat maintenance up comes first")
		if err := add(v.Context(), 24*time.Minute, time.Minute, "a", "e"); err != nil {
			v.Fatal(err)
		}
		expect("b DOWN -6m0s, c DRAINING -6m0s, d DRAINING -6m0s, a DRAINING 24m0s, e DRAINING 24m0s")
		if err := add(v.Context(), 36*time.Minute, time.Minute, "c", "d"); err != nil { // their windows go with the last of them
			v.Fatal(err)
		}
		expect("b DOWN -6m0s, a DRAINING 24m0s, e DRAINING 24m0s, c DRAINING 36m0s, d DRAINING 36m0s")
	})
}
