package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// A block that landed and was removed is not unknown: Locate says why it is not there, until it lands again, whatever else is reported
// meanwhile.
func TestWhatNobodyHoldsAnyMoreWasKnown(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		a.register()
		b.register()
		c.register()
		b.report(true)
		const x, y, z = "spark/app/x", "spark/app/y", "spark/app/shuffle_0_1_0"
		why := func(id, want string) {
			v.Helper()
			r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: id})
			if err != nil {
				v.Fatal(err)
			}
			if r.State != "unknown" || r.Why != want {
				v.Errorf("locate %s: got %s, because %q, want unknown, because %q", id, r.State, r.Why, want)
			}
		}
		gone := func(a *agent, why string, ids ...string) {
			v.Helper()
			if err := reports(a, &api.ReportBlocksRequest{Node: a.name, Incarnation: a.incarnation, Gone: ids, Why: why}); err != nil {
				v.Fatal(err)
			}
		}
		b.report(false, x, y, z)
		c.report(false, x)
		gone(b, "it was kept for 168h0m0s", x, z)
		v.located(x, "held", "c")
		why(z, "b removed it: it was kept for 168h0m0s")
		why(z+".data", "b removed it: it was kept for 168h0m0s") // a file of it
		why("spark/app/z", "")
		gone(c, "", x, "spark/app/z") // an older version, and a block that it never had
		why(x, "c removed it")
		why("spark/app/z", "")
		c.report(false, x)
		v.located(x, "held", "c")

		b.report(true, z) // all that it holds
		v.located(z, "held", "b")
		r, err := b.Locate(v.Context(), &api.LocateRequest{Id: z}) // the report that it was removed is on its way
		if err != nil || r.State != "unknown" || r.Why != "b has it no more" {
			v.Errorf("b asks for what it has: got %v, %v, want unknown, because it has it no more", r, err)
		}
		why(y, "b has it no more")
		source := "it changed or was deleted on " + strings.Repeat("n", maxName)
		gone(b, source, z)
		why(z, "b removed it: "+source)
		b.report(false, z)
		b.incarnation = "another machine"
		b.register()
		why(z, "b, which had it, is gone")
		v.restart()
		why(z, "") // as if it had never been known
		if _, err := v.operator().EndApps(v.Context(), &api.EndAppsRequest{Apps: []string{"app"}, Reason: "it failed"}); err != nil {
			v.Fatal(err)
		}
		v.restart()
		why(z, "its app is over: operator:eve said so: it failed") // which is in the log
		why(z+".data", "its app is over: operator:eve said so: it failed")
		why("spark/another/z", "")
	})
}

// crowded registers more nodes than can be candidates, and b, which it returns.
func crowded(v *town) *agent {
	for i := range 2 * maxCandidates {
		v.agent(fmt.Sprintf("n-%03d", i)).register()
	}
	b := v.agent("b")
	b.register()
	return b
}

// The last holder of a block cannot read it, and asks who else may have it: the source of the block is the first candidate, however many
// nodes have a store of that name.
func TestTheSourceOfWhatItsHolderLacksIsAsked(t *testing.T) {
	inTown(t, func(v *town) {
		b := crowded(v)
		for i := range 20 {
			source, id := fmt.Sprintf("n-%03d", 10*i), fmt.Sprintf("spark/app/shuffle_0_%d_0", i)
			landed := []*api.HeldBlock{{Id: id, From: source}}
			if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Landed: landed}); err != nil {
				v.Fatal(err)
			}
			for _, asked := range []string{id, id + ".data"} {
				r, err := b.Locate(v.Context(), &api.LocateRequest{Id: asked})
				if err != nil {
					v.Fatal(err)
				}
				if len(r.Holders) > 0 || r.Candidates[0].Node != source {
					v.Errorf("%s of %s: got holders %v, and the first of %d candidates %s", asked, source, r.Holders, len(r.Candidates), r.Candidates[0].Node)
				}
			}
		}
	})
}

// The source of a block may still have it, and is the first candidate, however many nodes have a store of that name.
func TestTheSourceOfWhatLapsedIsAsked(t *testing.T) {
	inTown(t, func(v *town) {
		b := crowded(v)
		for i := range 20 {
			source, id := fmt.Sprintf("n-%03d", 10*i), fmt.Sprintf("spark/app/x-%d", i)
			for _, r := range []*api.ReportBlocksRequest{{Landed: []*api.HeldBlock{{Id: id, From: source}}}, {Gone: []string{id}}} {
				r.Node, r.Incarnation = "b", b.incarnation
				if err := reports(b, r); err != nil {
					v.Fatal(err)
				}
			}
			r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: id})
			if err != nil {
				v.Fatal(err)
			}
			if n := len(r.Candidates); n != maxCandidates+1 || r.Candidates[0].Node != source {
				v.Errorf("%s of %s: got %d candidates, the first of them %s", id, source, n, r.Candidates[0].Node)
			}
		}
	})
}
