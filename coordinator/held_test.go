package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
	"unique"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// asksWho calls CheckHeld for blocks that were sent that long ago.
func (a *agent) asksWho(age time.Duration, ids ...string) (missing []uint32, unsure uint32, why string) {
	a.Helper()
	r, err := a.CheckHeld(a.Context(), &api.CheckHeldRequest{Node: a.name, Age: durationpb.New(age), Blocks: runsIn(ids...)})
	if err != nil {
		a.Fatal(err)
	}
	return r.Missing, r.Unsure, r.Why
}

func runsIn(ids ...string) (runs []*api.BlockRun) {
	for _, id := range ids {
		if last := len(runs) - 1; last < 0 || !runs[last].Add(id, 7) {
			runs = append(runs, api.NewBlockRun(id, 7))
		}
	}
	return runs
}

// Blocks that are reported missing are sent again, so those that are only not known yet must not be.
func TestWhoHasWhatWasCarried(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		for _, n := range []*agent{a, b, c} {
			n.register()
			n.report(true)
		}
		all := []string{"spark/app/x", "spark/app/y", "cache/-/z", "cache/-/never"}
		const x, y, z, never = 0, 1, 2, 3
		want := func(age time.Duration, because string, unsure uint32, missing ...uint32) {
			v.Helper()
			if got, n, why := a.asksWho(age, all...); !slices.Equal(got, missing) || n != unsure || why != because {
				v.Errorf("got %v (%q) and %d unsure, want %v (%q) and %d", got, why, n, missing, because, unsure)
			}
		}
		live := func(d time.Duration, agents ...*agent) {
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
				for _, n := range agents {
					n.beat()
				}
			}
		}
		b.report(false, all[x], all[y])
		c.report(false, all[y], all[z])
		want(time.Hour, "", 1) // its holder may have yet to tell this leader
		live(3*v.cfg.Lease, a, b, c)
		r, err := a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Age: durationpb.New(time.Hour), Blocks: runsIn(all...)})
		if err != nil || !slices.Equal(r.Holders, []string{"b", "c"}) {
			v.Errorf("got %v, %v, want all who have some", r.GetHolders(), err)
		}
		r, err = a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Age: durationpb.New(time.Hour), Blocks: []*api.BlockRun{api.NewBlockRun(all[x], 8)}})
		if err != nil || len(r.Missing) != 1 {
			v.Errorf("what is held has another size: got %v, %v, want it missing", r, err)
		}
		for _, at := range []*agent{a, b} {
			r, err = at.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: at.name, Age: durationpb.New(time.Hour), Elsewhere: true, Blocks: []*api.BlockRun{api.NewBlockRun(all[x], 8), api.NewBlockRun(all[y], 8)}})
			want := map[*agent][]string{a: {"b", "c"}, b: {"c"}}[at]
			var each []string
			for _, at := range r.GetAt() {
				each = append(each, append([]string{"nobody"}, r.Holders...)[at])
			}
			if one := map[*agent][]string{a: {"b", "b"}, b: {"nobody", "c"}}[at]; !slices.Equal(each, one) {
				v.Errorf("who else has each: got %v, want %v", each, one)
			}
			if slices.Sort(r.GetHolders()); err != nil || !slices.Equal(r.GetHolders(), want) || len(r.GetMissing())+int(r.GetUnsure()) > 0 {
				v.Errorf("who else has it: got %v, %v, want %v", r, err, want)
			}
		}
		want(time.Second, "", 1) // it landed a moment ago, and its holder has sent no heartbeat since
		want(time.Hour, "", 0, never)
		a.report(false, all[never]) // it took the block once, and sent it on
		want(time.Hour, "", 0, never)

		live(3*v.cfg.Lease, a, c)
		want(time.Hour, "b, which had it, is gone", 0, x, never)
		want(0, "b, which had it, is gone", 1, x)
		gone := &api.ReportBlocksRequest{Node: "c", Incarnation: c.incarnation, Gone: []string{all[z]}, Why: "it was kept for 1h0m0s"}
		if err := reports(c, gone); err != nil {
			v.Fatal(err)
		}
		want(0, "b, which had it, is gone", 2, x) // z may have changed at a and gone to another node, which has yet to report it
		want(time.Hour, "b, which had it, is gone", 0, x, z, never)
		b.beat() // it is back
		want(0, "", 2)
		want(time.Hour, "c removed it: it was kept for 1h0m0s", 0, z, never)
		live(3*v.cfg.Lease, a, c)
		r, err = a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Peers: []string{"b", "c", "nobody", "not a name\n"}})
		if err != nil || !slices.Equal(r.Gone, []string{"b", "nobody", "not a name\n"}) {
			v.Errorf("who is gone: got %v, %v, want all but c", r, err)
		}
		if want := map[string]string{"c": "c:7412"}; !maps.Equal(r.GetAddresses(), want) {
			v.Errorf("where they are: got %v, want %v", r.GetAddresses(), want)
		}
		another := v.agent("c")
		another.incarnation = "another"
		another.register()
		since := r.Index
		for _, c := range []struct {
			since uint64
			want  int
		}{{0, 0}, {since, 1}, {since + 2, 0}} { // there are two events: the old machine went, and the new one came
			r, err := a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Peers: []string{"c"}, Since: c.since})
			if err != nil || len(r.Renewed) != c.want || c.want > 0 && r.Renewed["c"] != fmt.Sprint("node-", since+2) || len(r.Gone) > 0 {
				v.Errorf("another machine since event %d: got %v, %v", c.since, r, err)
			}
		}

		v.restart()
		live(2*time.Second, a, b, c)
		want(time.Hour, "", 4)
	})
}

// CheckHeld with elsewhere names a holder that stays rather than one that leaves.
func TestWhoStaysIsNamedFirst(t *testing.T) {
	inTown(t, func(v *town) {
		for _, name := range []string{"a", "b", "c"} {
			n := v.agent(name)
			n.register()
			n.report(false, "spark/app/x")
			if name == "b" {
				n.notice("inc-1", time.Minute)
				n.announce()
			}
		}
		r, err := v.agent("a").CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Elsewhere: true, Blocks: runsIn("spark/app/x")})
		if err != nil || !slices.Equal(r.Holders, []string{"b", "c"}) || !slices.Equal(r.At, []uint32{2}) {
			t.Errorf("got %v, %v, want c, which stays", r, err)
		}
	})
}

// A node that rehearsed its leaving stays, and has its blocks: a machine that took another's name has it check which of that one's blocks it
// has. Those of its blocks that no other node took do not count as held any more.
func TestWhoIsDoneAndThereIsAskedWhatItHas(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		for _, n := range []*agent{a, b, c} {
			n.register()
		}
		b.report(false, "spark/app/x", "spark/app/y")
		c.report(false, "spark/app/x")
		b.notice("inc-1", time.Minute)
		b.announce()
		b.goodbye("inc-1")
		for range 30 {
			time.Sleep(time.Second)
			for _, n := range []*agent{a, b, c} {
				n.beat()
			}
		}
		r, err := a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Elsewhere: true, Blocks: runsIn("spark/app/x", "spark/app/y")})
		if err != nil || !slices.Equal(r.Holders, []string{"b", "c"}) || !slices.Equal(r.At, []uint32{2, 0}) {
			t.Errorf("got %v, %v, want b and c, and that x is read at c", r, err)
		}
		r, err = a.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "a", Blocks: runsIn("spark/app/x", "spark/app/y")})
		if err != nil || !slices.Equal(r.Holders, []string{"c"}) || len(r.Missing) != 1 {
			t.Errorf("got %v, %v, want c, and y missing", r, err)
		}
	})
}

// Peers keep a node's blocks while it may go at any moment, and for some time from when it went.
func TestForHowLongANodeHasBeenGone(t *testing.T) {
	inTown(t, func(v *town) {
		asks, stays, advised, drained, goes, dies := v.agent("asks"), v.agent("stays"), v.agent("advised"), v.agent("drained"), v.agent("goes"), v.agent("dies")
		living := []*agent{asks, stays, advised, drained}
		for _, n := range append(living, goes, dies) {
			n.register()
		}
		for _, n := range []*agent{drained, goes} {
			n.notice("inc", time.Hour)
			n.announce()
		}
		live := func(seconds int) {
			for range seconds {
				for _, n := range living {
					n.beat()
				}
				time.Sleep(time.Second)
			}
		}
		wants := func(when string, want map[string]time.Duration) {
			v.Helper()
			r, err := asks.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "asks", Peers: []string{"stays", "advised", "drained", "goes", "dies", "nobody"}})
			if err != nil {
				v.Fatal(err)
			}
			got := map[string]time.Duration{}
			for node, age := range r.GoneFor {
				got[node] = age.AsDuration().Truncate(time.Minute)
			}
			if !maps.Equal(got, want) {
				v.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		advised.under("pre-copy")
		drained.goodbye("inc")
		goes.goodbye("inc")
		living = append(living, goes)
		live(300)
		living = living[:4]
		live(300)
		wants("after ten minutes", map[string]time.Duration{"advised": 0, "drained": 0, "goes": 5 * time.Minute, "dies": 9 * time.Minute, "nobody": 10 * time.Minute}) // a lease later; when the log began
		v.restart()
		asks.beat()
		wants("nobody was heard yet", map[string]time.Duration{"stays": 0, "advised": 0, "drained": 0, "goes": 0, "dies": 0, "nobody": 10 * time.Minute})
		live(70)
		wants("two leases later", map[string]time.Duration{"advised": 0, "drained": 0, "goes": time.Minute, "dies": 10 * time.Minute, "nobody": 11 * time.Minute})
		v.cfg.ForgetAfter = 5 * time.Minute // and who is forgotten is not said to stay
		if _, err := v.operator().Forget(v.Context(), &api.ForgetRequest{Nodes: []string{"dies"}}); err != nil {
			v.Fatal(err)
		}
		wants("one is forgotten", map[string]time.Duration{"advised": 0, "drained": 0, "goes": time.Minute, "dies": 10 * time.Minute, "nobody": 11 * time.Minute})
		v.restart()
		live(int(2 * v.cfg.Lease.Seconds()))
		if _, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "goes"}); err == nil {
			v.Error("the clock has forgotten nobody")
		}
		wants("two are", map[string]time.Duration{"advised": 0, "drained": 0, "goes": 0, "dies": 11 * time.Minute, "nobody": 12 * time.Minute})
	})
}

// Node entries are about the machine that has the name now; blocks that landed before may be from another machine.
func TestSinceWhenAMachineIsKnown(t *testing.T) {
	inTown(t, func(v *town) {
		a, asks := v.agent("a"), v.agent("asks")
		for _, n := range []*agent{a, asks} {
			n.register()
		}
		wants := func(when string, want map[string]time.Duration) {
			v.Helper()
			r, err := asks.CheckHeld(v.Context(), &api.CheckHeldRequest{Node: "asks", Peers: []string{"a", "asks", "nobody"}})
			if err != nil {
				v.Fatal(err)
			}
			got := map[string]time.Duration{}
			for node, age := range r.KnownFor {
				got[node] = age.AsDuration().Truncate(time.Minute)
			}
			if !maps.Equal(got, want) {
				v.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		time.Sleep(10 * time.Minute)
		a.register()
		wants("it registered again", map[string]time.Duration{"a": 10 * time.Minute, "asks": 10 * time.Minute})
		a.incarnation = "another"
		a.register()
		time.Sleep(time.Minute)
		wants("another machine has its name", map[string]time.Duration{"a": time.Minute, "asks": 11 * time.Minute})
		v.restart()
		wants("the coordinator restarts", map[string]time.Duration{"a": time.Minute, "asks": 11 * time.Minute})
	})
}

// A node that sent blocks is told when a receiver that is there has reported that it does not hold them any more, and no other node does.
func TestNodeIsToldThatSomeAreHeldNoMore(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("gone"), v.agent("b"), v.agent("c") // all blocks are reported as from node "gone"
		for _, n := range []*agent{a, b, c} {
			n.register()
			n.report(true)
		}
		const x, y, z = "spark/app/x", "spark/app/y", "spark/app/z"
		b.report(false, x, y, z)
		c.report(false, x)
		gone := func(ids ...string) {
			if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Gone: ids}); err != nil {
				v.Fatal(err)
			}
		}
		var last uint64
		told := func(what string, is bool) {
			v.Helper()
			if now := a.beat().Lapses; now != last != is {
				v.Errorf("%s: it is told %d after %d", what, now, last)
			} else {
				last = now
			}
			if n := c.beat().Lapses; n&0xffffffff > 1 { // 1: of the app
				v.Errorf("%s: another node is told %d", what, n)
			}
		}
		told("all is held", false)
		gone(x)
		told("another has it", false)
		gone(y)
		told("nobody has it", true)
		told("that is all", false)
		const w = "spark/app-over/w"
		b.report(false, w)
		if _, err := v.operator().EndApps(v.Context(), &api.EndAppsRequest{Apps: []string{"app-over"}}); err != nil {
			v.Fatal(err)
		}
		gone(w)
		told("its app is over", false)
		if _, err := v.operator().EndApps(v.Context(), &api.EndAppsRequest{Apps: []string{"app-over"}, Undo: true}); err != nil {
			v.Fatal(err)
		}
		if now := a.beat().Lapses; now == last {
			v.Errorf("it is told nothing when that is taken back")
		} else {
			last = now
		}
		b.report(true) // a disk has died
		told("all that it holds is less", true)
		b.report(false, z)
		b.beat()
		for range int(2 * v.cfg.Lease / time.Second) {
			time.Sleep(time.Second)
			a.beat()
			c.beat()
		}
		v.is("b", registry.Lost)
		told("a holder is gone, which is asked for by its name", false)
		v.restart()
		a.beat()
		if n := a.beat().Lapses; n != 0 {
			v.Errorf("it is told %d by a coordinator that was told nothing", n)
		}
		b.beat()
		b.report(true, y)
		gone(y)
		told("by a coordinator that began anew", true)
	})
}

func TestWhoMayAskWhoHasIt(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		ask := func(r *api.CheckHeldRequest) error { _, err := a.CheckHeld(v.Context(), r); return err }
		v.refused(ask(&api.CheckHeldRequest{Node: "b"}), codes.PermissionDenied, "")
		v.refused(ask(&api.CheckHeldRequest{Node: "a", Age: &durationpb.Duration{Seconds: 1, Nanos: -1}}), codes.InvalidArgument, "age")
		v.refused(ask(&api.CheckHeldRequest{Node: "a", Peers: make([]string, mostPeersAsked+1)}), codes.InvalidArgument, "1025 peers")
		for what, run := range badRuns() {
			v.refused(ask(&api.CheckHeldRequest{Node: "a", Blocks: []*api.BlockRun{run}}), codes.InvalidArgument, what)
		}
		if err := ask(&api.CheckHeldRequest{Node: "a"}); err != nil {
			v.Errorf("nothing is asked: %v", err)
		}
	})
}

// BenchmarkCheckHeld asks about 1,024 of 200,000 blocks that one of a hundred nodes has each.
func BenchmarkCheckHeld(b *testing.B) {
	cfg := Default()
	cfg.DataDir = b.TempDir()
	f := opened(b, cfg)
	id := func(i int) string { return fmt.Sprintf("cache/-/d%03d/part-%06d", i/1000, i) }
	from := unique.Make("a")
	for i := range 200_000 {
		if _, err := f.locations.blocks.Hear(fmt.Sprintf("host-%d", i%100), []blockmap.Word{{Key: blockmap.KeyOf(id(i)), What: blockmap.Landed{Bytes: 4096, From: from}}}); err != nil {
			b.Fatal(err)
		}
	}
	var ids []string
	for i := range 1024 {
		ids = append(ids, id(i*190))
	}
	r := &api.CheckHeldRequest{Blocks: runsIn(ids...)}
	for b.Loop() {
		f.locations.held(r)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/block")
}

// After a take-over a node that has not reported yet may have the block: for a lease that may be any node, then only nodes in the log.
func TestAllHaveToldALeaseAfterATakeOver(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		for _, n := range []*agent{a, b} {
			n.register()
		}
		a.report(true)
		want := func(when string, missing, unsure int) {
			v.Helper()
			if got, n, _ := a.asksWho(time.Hour, "cache/-/x"); len(got) != missing || int(n) != unsure {
				v.Errorf("%s: %d missing and %d unsure, want %d and %d", when, len(got), n, missing, unsure)
			}
		}
		live := func(d time.Duration) {
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
				a.beat()
				b.beat()
			}
		}
		want("b has yet to tell", 0, 1)
		live(v.cfg.Lease + time.Second)
		want("b is slow", 0, 1)
		b.report(true)
		want("all have told", 1, 0)
	})
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.report(true)
		if got, unsure, _ := a.asksWho(time.Hour, "cache/-/x"); len(got) != 0 || unsure != 1 {
			v.Errorf("%d missing and %d unsure at once, want one: the log may have begun anew", len(got), unsure)
		}
	})
}

// Another machine has a node's name, and the former machine's blocks are not forgotten yet, or are reported once more by a report that was
// on its way: the new machine does not count as their holder.
func TestAnotherMachineHasNothingOfTheOneBefore(t *testing.T) {
	cfg := Default()
	cfg.DataDir = t.TempDir()
	f := opened(t, cfg)
	f.ledger.decided = nil // the moment between a decision and its consequences
	machine := func(incarnation string) string {
		t.Helper()
		if _, err := f.ledger.do(registry.Command{Do: registry.DoRegister, Nodes: []string{"b"}, Facts: &registry.Facts{Incarnation: incarnation, PeerAddress: "b:7412"}}); err != nil {
			t.Fatal(err)
		}
		f.leases.register("b", &api.RegisterRequest{Status: &api.Status{}}, time.Now())
		n, _ := f.ledger.node("b")
		return n.ID
	}
	tells := func(id string) {
		full := blockmap.New()
		if _, err := full.Hear("b", []blockmap.Word{{Key: blockmap.KeyOf("cache/-/x"), What: blockmap.Landed{Bytes: 7, From: unique.Make("a")}}}); err != nil {
			t.Fatal(err)
		}
		f.locations.blocks.Replace("b", id, full)
	}
	want := func(when string, missing int) {
		t.Helper()
		if got := f.locations.held(&api.CheckHeldRequest{Node: "a", Age: durationpb.New(time.Hour), Blocks: runsIn("cache/-/x")}); len(got.Missing) != missing {
			t.Errorf("%s: got %v, want %d missing", when, got, missing)
		}
	}
	one := machine("one")
	tells(one)
	want("it has it", 0)
	two := machine("two")
	want("another is there", 1)
	tells(one)
	want("the one before is heard late", 1)
	tells(two)
	want("the other has it, too", 0)
}
