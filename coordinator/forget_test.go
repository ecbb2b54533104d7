package coordinator

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// An operator has a machine that never comes back dropped at once, with what it was said to hold. A node that is there, or that may come
// back to an order, is not dropped.
func TestOperatorForgetsWhoNeverComesBack(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		forget := func(names ...string) (*api.ForgetReply, error) {
			return v.operator().Forget(v.Context(), &api.ForgetRequest{Nodes: names, Reason: "terminated"})
		}
		gone := func(name string) {
			v.Helper()
			_, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: name})
			v.refused(err, codes.NotFound, name)
		}
		for _, one := range []*agent{a, b, c} {
			one.beat()
			one.report(true, "cache/-/"+one.name)
		}
		v.refused(func() error { _, err := forget("b"); return err }(), codes.FailedPrecondition, "only a node that is LOST or GONE")
		v.order(0, "c")
		for range int(v.cfg.Lease.Seconds()) + 2 {
			b.live(1)
		}
		v.is("a", registry.Lost)
		v.is("c", registry.Decommissioned)
		for _, names := range [][]string{{"a", "b"}, {"a", "c"}} { // whole or not at all
			v.refused(func() error { _, err := forget(names...); return err }(), codes.FailedPrecondition, names[1])
			v.is("a", registry.Lost)
		}
		v.refused(func() error { _, err := forget("a", "nobody"); return err }(), codes.NotFound, "nobody")
		reply, err := forget("a")
		if err != nil {
			v.Fatal(err)
		}
		if got := reply.Nodes[0]; got.Node != "a" || got.State != string(registry.Lost) || got.Blocks != 1 || got.Id == "" {
			v.Errorf("got %v, want a, which was LOST and had 1 block", got)
		}
		gone("a")
		v.located("cache/-/a", "unknown")
		v.restart()
		gone("a")
		a.register()
		v.is("a", registry.Active)

		drain := &api.DecommissionRequest{Nodes: []string{"b"}, Timeout: durationpb.New(0), Drain: true, MarkGone: true}
		if _, err := v.operator().Decommission(v.Context(), drain); err != nil {
			v.Fatal(err)
		}
		b.beat()
		v.refused(func() error { _, err := forget("b"); return err }(), codes.FailedPrecondition, "heard less than "+v.cfg.Lease.String()+" ago: stop its agent")
		time.Sleep(v.cfg.Lease + time.Second)
		if _, err := forget("b"); err != nil {
			v.Fatal(err)
		}
		gone("b")
		v.refused(b.tryRegister(), codes.FailedPrecondition, "GONE") // for ever

		var asked []string
		for _, r := range v.audit(0, "a") {
			asked = append(asked, r.Asked+" "+r.Outcome)
		}
		if len(asked) == 0 || asked[len(asked)-1] != "forget done" {
			v.Errorf("the audit has %q", asked)
		}
	})
}
