package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"unique"

	"github.com/lifeboat/lifeboat/api"
)

// A block that landed and was removed is no block that nobody ever knew: who asks hears why it is not there, until it lands
// again, and whatever else is told meanwhile.
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
		gone(c, "", x, "spark/app/z") // of an older version, and what it never had
		why(x, "c removed it")
		why("spark/app/z", "")
		c.report(false, x)
		v.located(x, "held", "c")

		b.report(true, z) // all that it holds
		v.located(z, "held", "b")
		r, err := b.Locate(v.Context(), &api.LocateRequest{Id: z}) // its word that it removed it is on its way
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
		why(z, "") // as if nobody had ever known it
	})
}

// A full report says again what there is, every time that a leader changes: nothing of that makes room for itself.
func TestWhatStaysDoesNotLapse(t *testing.T) {
	known := newBlocks()
	x, y := keyOf("s/a/x"), keyOf("s/a/y")
	full := func(keys ...blockKey) *blocks {
		all := newBlocks()
		for _, k := range keys {
			if _, err := all.hear("b", []word{{key: k, what: landed{1, unique.Make("a")}}}); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	known.replace("b", "", full(x, y))
	known.replace("b", "", full(x))
	if _, why := known.endOf(x); why != "" {
		t.Errorf("x, which is held: got %q", why)
	}
	if from, why := known.endOf(y); from != "a" || why != "b has it no more" {
		t.Errorf("y: got %q from %q", why, from)
	}
	if nodes, _ := known.holders(x); len(nodes) != 1 || known.located() != 1 {
		t.Errorf("got x at %v and %d blocks in all, want it at b alone", nodes, known.located())
	}
}

// The source of a block may have it still, and is asked first, however many nodes have a store of that name.
func TestTheSourceOfWhatLapsedIsAsked(t *testing.T) {
	inTown(t, func(v *town) {
		for i := range 2 * maxCandidates {
			v.agent(fmt.Sprintf("n-%03d", i)).register()
		}
		b := v.agent("b")
		b.register()
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

// However many blocks end, what is remembered of them is bounded: the newest.
func TestLapsedAreBounded(t *testing.T) {
	var l lapsed
	from := unique.Make("a")
	spread := func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }
	const many = 10 * lapsedRows * lapsedEach
	for i := range many {
		l.add(spread(i), from, "b removed it")
		l.add(spread(i), from, fmt.Sprint("c removed it ", i%2)) // it came again, and went
	}
	kept, once := 0, map[uint64]bool{}
	for _, row := range l.rows {
		kept += len(row)
		for _, one := range row {
			once[one.key] = true
		}
		if cap(row) > lapsedEach {
			t.Fatalf("room for %d in a row, want at most %d", cap(row), lapsedEach)
		}
	}
	if kept > lapsedRows*lapsedEach || kept != len(once) {
		t.Errorf("got %d of %d blocks, want each once and at most %d", kept, len(once), lapsedRows*lapsedEach)
	}
	for i, want := range map[int]string{many - 1: "c removed it 1", many - lapsedRows: "c removed it 0", 0: "", many + 1: ""} {
		if _, why := l.at(spread(i)); why != want {
			t.Errorf("block %d of %d: got %q, want %q", i, many, why, want)
		}
	}
}
