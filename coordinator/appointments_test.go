package coordinator

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// For an appointment that has begun a node leaves at once, also one that an operator kept when it left for another; for one that
// is over none does, and the node is as any.
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
		if n := v.seen("a"); n.State != string(Active) || !n.Schedulable || n.Maintenance != modeUp || n.MaintenanceStart != nil {
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
				v.is("a", Decommissioning)
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
				v.is("a", Active) // it is kept
			}
		}
	})
}
