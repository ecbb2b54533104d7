package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A deactivated node stays in the fleet and is given no blocks, through its own restart and the coordinator's, until an operator reactivates
// it. Another machine of the name is another node, and is not deactivated.
func TestDeactivatedNodeIsGivenNothing(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		say := func(undo bool, names ...string) error {
			_, err := v.operator().Deactivate(v.Context(), &api.DeactivateRequest{Nodes: names, Reason: "noisy", Undo: undo})
			return err
		}
		expect := func(when string, deactivated bool) {
			v.Helper()
			a.live(1)
			b.version = 0
			told := slices.ContainsFunc(b.live(1).Peers, func(p *api.Peer) bool { return p.Node == "a" })
			if n := v.seen("a"); n.Deactivated != deactivated || n.Schedulable == deactivated || n.State != string(registry.Active) || told == deactivated {
				v.Errorf("%s: got deactivated %t, schedulable %t, %s, a peer %t", when, n.Deactivated, n.Schedulable, n.State, told)
			}
		}
		a.beat()
		b.beat()
		time.Sleep(settle)
		expect("before", false)
		v.refused(say(false, "a", "nobody"), codes.NotFound, "nobody")
		expect("refused whole", false)
		for range 2 { // the second changes nothing
			if err := say(false, "a"); err != nil {
				v.Fatal(err)
			}
		}
		expect("deactivated", true)
		v.restart()
		time.Sleep(settle)
		expect("after a restart of the coordinator", true)
		a.register()
		expect("after its own", true)
		if err := say(true, "a", "b"); err != nil {
			v.Fatal(err)
		}
		expect("reactivated", false)
		if err := say(false, "a"); err != nil {
			v.Fatal(err)
		}
		a.incarnation = "another machine"
		a.register()
		expect("replaced", false)

		var told, asked []string
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{Types: []string{registry.EventDeactivated, registry.EventReactivated}})
		if err != nil {
			v.Fatal(err)
		}
		for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
			told = append(told, strings.TrimSpace(strings.Join([]string{e.Type, e.Node, e.Data["reason"], e.Data["by"]}, " ")))
		}
		const out, in = registry.EventDeactivated + " a noisy operator:eve", registry.EventReactivated + " a noisy operator:eve"
		if !slices.Equal(told, []string{out, in, out}) {
			v.Errorf("told %q", told)
		}
		for _, r := range v.audit(0, "") {
			asked = append(asked, r.Asked)
		}
		if got := strings.Join(asked, " "); got != "deactivate deactivate deactivate reactivate deactivate" {
			v.Errorf("the audit has %q", got)
		}
	})
}
