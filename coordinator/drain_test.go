package coordinator

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// What an operator is told, by the calls.
func TestOperatorDrains(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		ask := func(r *api.DecommissionRequest) error {
			r.Nodes = []string{"a"}
			_, err := v.operator().Decommission(v.Context(), r)
			return err
		}
		v.refused(ask(&api.DecommissionRequest{MarkGone: true, LeavingOnly: true}), codes.InvalidArgument, "leaving_only")
		if err := ask(&api.DecommissionRequest{Drain: true, MarkGone: true, Timeout: durationpb.New(time.Minute)}); err != nil {
			v.Fatal(err)
		}
		if n := v.seen("a"); n.State != string(registry.Decommissioning) || !n.Deactivated {
			v.Errorf("got %v", n)
		}
		a.goodbye("inc-1")
		if n := v.seen("a"); n.State != string(registry.Gone) || n.Schedulable {
			v.Errorf("got %v", n)
		}
		v.refused(a.tryRegister(), codes.FailedPrecondition, "GONE")
		_, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.FailedPrecondition, "GONE")
		if r := v.audit(0, "")[0]; r.Asked != "drain" || r.Detail["mark_gone"] != "yes" {
			v.Errorf("the audit has %v", r)
		}
	})
}
