package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A node whose disks are all unwell gets no blocks until it reports otherwise. Neither its silence nor a restart of the coordinator ends
// that.
func TestAllDisksUnwellExcludesTheNode(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		bad := []*api.Disk{{Path: "/mnt/d0", Health: "IO_HANG", Unwell: true}, {Path: "/mnt/d1", Health: "MISSING", Unwell: true}}
		some := []*api.Disk{bad[0], {Path: "/mnt/d1", Health: "HEALTHY"}}
		unsure := []*api.Disk{bad[0], {Path: "/mnt/d1", Health: "UNKNOWN"}}
		expect := func(when string, excluded bool) {
			v.Helper()
			b.version = 0
			told := slices.ContainsFunc(b.live(1).Peers, func(p *api.Peer) bool { return p.Node == "a" })
			if n := v.seen("a"); n.Excluded != excluded || n.Schedulable == excluded || told == excluded {
				v.Errorf("%s: got excluded %t, schedulable %t, a peer %t", when, n.Excluded, n.Schedulable, told)
			}
		}
		a.beat()
		b.beat()
		time.Sleep(settle)
		for _, step := range []struct {
			when     string
			disks    []*api.Disk
			excluded bool
		}{
			{"no word of disks", nil, false}, {"one is well", some, false}, {"all are unwell", bad, true}, {"no word of disks, again", nil, true},
			{"one is not known", unsure, false}, {"all are unwell, again", bad, true},
		} {
			a.status.Disks = step.disks
			a.beat()
			expect(step.when, step.excluded)
		}
		a.status.Disks = nil
		v.restart()
		time.Sleep(settle)
		a.beat()
		b.beat()
		expect("after a restart", true)
		a.status.Disks = some
		a.beat()
		expect("one is well again", false)
		var told []string
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{})
		if err != nil {
			v.Fatal(err)
		}
		for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
			if e.Type == registry.EventExcluded || e.Type == registry.EventReadmitted {
				told = append(told, e.Type+" "+e.Data["reason"])
			}
		}
		const out, in = registry.EventExcluded + " /mnt/d0 IO_HANG, /mnt/d1 MISSING", registry.EventReadmitted + " "
		if want := []string{out, in, out, in}; !slices.Equal(told, want) {
			v.Errorf("got events %q, want %q", told, want)
		}
	})
}
