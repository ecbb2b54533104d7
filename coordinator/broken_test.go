package coordinator

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A block breaks at a node to which it was handed on. The node that handed it on and the node that it was written on, which knows another
// receiver of it, are both asked to send it again, until each has named it as lost, or a node has it.
func TestBrokenBlockIsAskedOfAllItCameFrom(t *testing.T) {
	b, k := newBroken(), blockmap.KeyOf("cache/-/x")
	was := brokenAt{from: "passer", sources: []string{"passer", "home"}, peer: "heir", bytes: 7}
	nobody := func(blockmap.Key, []string) bool { return false }
	want := func(when, of string, asked, heir bool) {
		t.Helper()
		got := b.askFor(of, nobody)
		if len(got) == 1 != asked || asked && (got[0].Id != "cache/-/x" || got[0].Peer != "heir" || got[0].Heir != heir) {
			t.Errorf("%s: %s is asked for %v", when, of, got)
		}
	}
	for range 2 { // it is told twice
		b.add(k, was)
	}
	want("at first", "passer", true, false)
	want("at first", "home", true, true)
	want("at first", "other", false, false)
	b.settle("other", "cache/-/x")
	b.settle("passer", "cache/-/x")
	want("once one has named it", "passer", false, false)
	want("once one has named it", "home", true, true)
	b.settle("home", "cache/-/x")
	want("once both have", "home", false, false)
	if all := b.all(); len(all) > 0 {
		t.Errorf("%v is remembered", all)
	}
	b.add(k, was)
	if got := b.askFor("home", func(blockmap.Key, []string) bool { return true }); len(got) > 0 || len(b.all()) > 0 {
		t.Errorf("it is held, and asked for: %v", got)
	}
}

// One of two holders is done and about to go, and the block breaks at the other: soon no node will have it, so the source is asked to send
// it again. While the first holder stays it is not asked.
func TestBrokenBlockThatOnlyOneHasWhoIsDoneIsAskedFor(t *testing.T) {
	for _, done := range []bool{false, true} {
		inTown(t, func(v *town) {
			a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
			for _, n := range []*agent{a, b, c} {
				n.register()
				n.report(true)
			}
			const x = "cache/-/x"
			for _, holder := range []*agent{b, c} {
				landed := &api.ReportBlocksRequest{Node: holder.name, Incarnation: holder.incarnation, Landed: []*api.HeldBlock{{Id: x, From: "a", Bytes: 7}}}
				if err := reports(holder, landed); err != nil {
					v.Fatal(err)
				}
			}
			a.notice("inc-a", time.Hour)
			a.announce()
			if done {
				c.notice("inc-c", time.Hour)
				c.announce()
				c.goodbye("inc-c")
			}
			for range 25 {
				time.Sleep(time.Second)
				for _, n := range []*agent{a, b, c} {
					n.beat()
				}
			}
			broke := &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Broken: []*api.HeldBlock{{Id: x, From: "a", Bytes: 7}}}
			if err := reports(b, broke); err != nil {
				v.Fatal(err)
			}
			if asked := a.beat().Again; len(asked) == 1 != done {
				v.Errorf("the other holder is done: %t, and it is asked for %v", done, asked)
			}
		})
	}
}

// A faulty node reports one block as broken again and again, each time with another source: the coordinator remembers it as one.
func TestBrokenBlockIsRememberedOnce(t *testing.T) {
	b := newBroken()
	for i := range 1000 {
		from := fmt.Sprintf("node-%d", i)
		b.add(blockmap.KeyOf("spark/app/x"), brokenAt{from: from, sources: []string{from}, peer: "p"})
	}
	if len(b.known) != 1 || len(b.of) != 1 || len(b.of["node-999"]) != 1 {
		t.Errorf("%d blocks are known, of %d nodes, want one, of the last", len(b.known), len(b.of))
	}
}

// Files that are being written and manifests are told apart by their names, whatever a node is called.
func TestManifestOfAnyNodeIsTaken(t *testing.T) {
	w := &manifestWriter{name: "partial-1-abc.jsonl"}
	if err := checkManifestFile(w.name); err != nil {
		t.Error(err)
	}
	if checkManifestFile(w.partial()) == nil {
		t.Errorf("%s passes for a manifest", w.partial())
	}
}

// Broken blocks of machines that are gone for good make room for those that a node can still send again: else a leader that led for months
// would have no room for new ones. A goodbye that names all of its node's broken blocks as lost, in the node's last seconds, takes only a
// moment.
func TestBrokenBlocksOfTheGoneMakeRoom(t *testing.T) {
	b := newBroken()
	add := func(name, from string) bool {
		return b.add(blockmap.KeyOf("spark/app/"+name), brokenAt{from: from, sources: []string{from}, peer: "p"})
	}
	ids := make([]string, maxBroken)
	for i := range ids {
		ids[i] = fmt.Sprint("spark/app/", i)
		add(fmt.Sprint(i), "gone")
	}
	if add("x", "a") {
		t.Fatal("more are remembered than may be")
	}
	b.leaves("gone")
	if got := len(b.all()); got != maxBroken {
		t.Errorf("%d are remembered, want all while there is room", got)
	}
	nobody := func(blockmap.Key, []string) bool { return false }
	if !add("x", "a") || len(b.askFor("a", nobody)) != 1 || len(b.of["gone"]) > 0 {
		t.Error("what can be asked for has no room")
	}

	for i := range maxBroken - 1 {
		add(fmt.Sprint(i), "b")
	}
	runtime.LockOSThread() // what this thread spends is the same on a busy machine
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano())
	}
	began := spent()
	for said := range slices.Chunk(ids, 1024) { // in the parts of a goodbye
		b.settle("b", said...)
	}
	if took := spent() - began; took > 4*time.Second || len(b.all()) != 1 || len(b.of) != 1 {
		t.Errorf("after %s of a processor %d are remembered, of %d nodes, want the one of another", took, len(b.all()), len(b.of))
	}
}

// Another machine has the name of a block's source: it is not asked for the block, which is lost, whether it broke before that machine came
// or after.
func TestBrokenBlockOfAnotherMachineIsLost(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		for _, n := range []*agent{a, b} {
			n.register()
			n.report(true)
		}
		const before, after = "cache/-/before", "cache/-/after"
		says := func(broken bool, id string) {
			v.Helper()
			r := &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation}
			if word := []*api.HeldBlock{{Id: id, From: "a", Bytes: 7}}; broken {
				r.Broken = word
			} else {
				r.Landed = word
			}
			if err := reports(b, r); err != nil {
				v.Fatal(err)
			}
		}
		says(false, before)
		says(false, after)
		a.notice("inc-a", time.Hour)
		a.announce()
		says(true, before)
		if asked := a.beat().Again; len(asked) != 1 {
			v.Errorf("it leaves, and is asked for %v", asked)
		}
		a.incarnation, a.status.Notice = "another machine", nil
		a.register()
		a.live(5)
		v.located(before, "lost")
		v.lists("", after+" held [b] a", before+" lost [] a")
		says(true, after)
		v.located(after, "lost")
		a.notice("inc-b", time.Hour)
		a.announce()
		for _, asked := range a.beat().Again {
			if asked.Id == before {
				v.Errorf("another machine is asked for %v", asked)
			}
		}
	})
}

// A reply asks for the first of the broken blocks, and goes on asking until the goodbye if the node cannot send them again, because their
// files are gone, say. So the reply also tells the node to check all blocks that it sent: else the others would be lost silently.
func TestBrokenBlocksBehindTheFirstAreToldOf(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		for _, n := range []*agent{a, b} {
			n.register()
			n.report(true)
		}
		var all []*api.HeldBlock
		for i := range againTold + 6 {
			all = append(all, &api.HeldBlock{Id: fmt.Sprintf("cache/-/%d", i), From: "a", Bytes: 7})
		}
		if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Landed: all}); err != nil {
			v.Fatal(err)
		}
		a.notice("inc-a", time.Hour)
		a.announce()
		breaks := func(some ...*api.HeldBlock) *api.HeartbeatReply {
			v.Helper()
			if err := reports(b, &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation, Broken: some}); err != nil {
				v.Fatal(err)
			}
			return a.beat()
		}
		if r := breaks(all[:againTold]...); len(r.Again) != againTold || r.Lapses != 0 {
			v.Errorf("all are asked for: got %d, and told %d", len(r.Again), r.Lapses)
		}
		r := breaks(all[againTold:]...)
		if len(r.Again) != againTold || r.Lapses == 0 {
			v.Errorf("more are broken: %d are asked for, and it is told %d", len(r.Again), r.Lapses)
		}
		for until := time.Now().Add(2 * v.cfg.Lease); time.Now().Before(until); time.Sleep(time.Second) { // until all have told what they have
			a.beat()
			b.beat()
		}
		behind := all[againTold].Id
		if missing, _, _ := a.asksWho(10*time.Second, behind); len(missing) != 1 {
			v.Errorf("%s is behind the first, and not missing", behind)
		}
		if b.beat().Lapses != 0 {
			v.Error("another node is told of them")
		}
	})
}

// More blocks break than the coordinator remembers, and their source leaves: it is told that some lapsed, finds out which, and sends them
// again too. They are never called lost.
func TestBrokenBlocksBeyondThoseRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		cfg.DataDir = t.TempDir()
		f := opened(t, cfg)
		var said strings.Builder
		f.locations.log = slog.New(slog.NewTextHandler(&said, nil))
		for _, name := range []string{"a", "b"} {
			if _, err := f.do(registration(name)); err != nil {
				t.Fatal(err)
			}
			f.leases.beat(name, &api.Status{}, time.Now())
		}
		if _, err := f.do(registry.Command{Do: registry.DoAnnounce, Nodes: []string{"a"}, Incarnation: "i", Notice: &registry.Notice{Incident: "inc", Kind: "terminate", Source: "ec2"}}); err != nil {
			t.Fatal(err)
		}
		words := make([]*api.HeldBlock, maxBroken+1)
		for i := range words {
			words[i] = &api.HeldBlock{Id: fmt.Sprint("cache/-/", i), Bytes: 1, From: "a"}
		}
		f.locations.breaks("b", words)
		if got := said.String(); !strings.Contains(got, "then=again") || strings.Contains(got, "then=lost") {
			t.Errorf("got %q, want all carried again", got)
		}
		if f.locations.blocks.EndsOf("a") == 0 {
			t.Error("a is not told that some lapsed")
		}
	})
}
