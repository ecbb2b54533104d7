package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// The table of blocks agrees with the plainest one there is, whatever is said in whatever order.
func TestBlocksAgreeWithModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, model := newBlocks(), map[string]map[string]bool{} // node: ids
		id := func() string { return fmt.Sprintf("s/app%d/b%d", r.IntN(3), r.IntN(8)) }
		for step := range 400 {
			node := fmt.Sprint("n", r.IntN(4))
			if model[node] == nil {
				model[node] = map[string]bool{}
			}
			switch x := id(); r.IntN(8) {
			case 0:
				full := newBlocks()
				clear(model[node])
				for range r.IntN(5) {
					x := id()
					model[node][x] = true
					if _, err := full.hear(node, []word{{key: keyOf(x), what: landed{from: unique.Make("")}}}); err != nil {
						t.Fatal(err)
					}
				}
				b.replace(node, "", full)
			case 1:
				clear(model[node])
				b.forget(node)
			case 2, 3, 4:
				delete(model[node], x)
				if _, err := b.hear(node, []word{{key: keyOf(x), gone: true}}); err != nil {
					t.Fatal(err)
				}
			default:
				model[node][x] = true
				if _, err := b.hear(node, []word{{key: keyOf(x), what: landed{int64(step), unique.Make("f")}}}); err != nil {
					t.Fatal(err)
				}
			}
			all := map[string]bool{}
			for a := range 3 {
				for i := range 8 {
					x := fmt.Sprintf("s/app%d/b%d", a, i)
					var want []string
					for _, n := range slices.Sorted(maps.Keys(model)) {
						if model[n][x] {
							want = append(want, n)
							all[x] = true
						}
					}
					if got, _ := b.holders(keyOf(x)); !slices.Equal(got, want) {
						t.Fatalf("seed %d, step %d: block %s: got holders %v, want %v", seed, step, x, got, want)
					}
				}
			}
			if b.located() != len(all) {
				t.Fatalf("seed %d, step %d: got %d blocks located, want %d", seed, step, b.located(), len(all))
			}
			if got := len(b.of(node)); got != len(model[node]) {
				t.Fatalf("seed %d, step %d: got %d blocks of %s, want %d", seed, step, got, node, len(model[node]))
			}
		}
	}
}

func FuzzBlockID(f *testing.F) {
	for _, s := range []string{"s/a/x", "s/-/dir/x", "", "/", "//", "s//x", "s/a/", "s/a/\x00", "é/b/c", "s/a/b/../../c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkID(s) == nil {
			if got := keyOf(s).id(); got != s {
				t.Errorf("got %q, want %q", got, s)
			}
		}
	})
}

func BenchmarkBlocks(b *testing.B) {
	for b.Loop() {
		const n = 1 << 20
		blocks := newBlocks()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			id := fmt.Sprintf("spark/app-20261121120000-0001/shuffle_%d_%d_0", i/10000, i%10000)
			if _, err := blocks.hear(fmt.Sprint("node-", i%100), []word{{key: keyOf(id), what: landed{1 << 20, unique.Make("node-x")}}}); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/block")
		runtime.KeepAlive(blocks)
	}
}

func fleetOf(n int) []*api.Peer {
	var peers []*api.Peer
	for i := range n {
		peers = append(peers, &api.Peer{Node: fmt.Sprintf("host-%04d", i), Address: "h:1", Zone: fmt.Sprint("z", i/100), RoomBytes: 1})
	}
	return peers
}

func TestRosterSpreads(t *testing.T) {
	r, all := newRoster(), fleetOf(300)
	told := map[string]int{}
	for _, asker := range slices.Clone(all) {
		version, peers := r.pick(asker.Node, t0, func() []*api.Peer { return all })
		if len(peers) != peersTold || version == 0 {
			t.Fatalf("got %d peers of version %d, want %d", len(peers), version, peersTold)
		}
		zones := map[string]bool{}
		for _, p := range peers {
			if p.Node == asker.Node {
				t.Fatalf("%s is told of itself", asker.Node)
			}
			told[p.Node]++
			zones[p.Zone] = true
		}
		if len(zones) < 2 {
			t.Errorf("%s is told of one zone only", asker.Node)
		}
		slices.Reverse(all) // the order in which nodes are listed is nothing
		r.change()
		if again, _ := r.pick(asker.Node, t0.Add(time.Hour), func() []*api.Peer { return all }); again != version {
			t.Fatalf("%s: got version %d for the same fleet, want %d", asker.Node, again, version)
		}
	}
	most := slices.Max(slices.Collect(maps.Values(told)))
	if len(told) != len(all) || most > 2*peersTold {
		t.Errorf("got %d nodes told, one of them %d times, want all about %d times", len(told), most, peersTold)
	}
}

// Of a fleet that is advised to go nearly whole, agents are told of those first that are not.
func TestRosterNamesAdvisedNodesLast(t *testing.T) {
	all := fleetOf(300)
	for i, p := range all {
		p.Advised = i%30 != 0
	}
	for _, asker := range all {
		_, peers := newRoster().pick(asker.Node, t0, func() []*api.Peer { return slices.Clone(all) })
		well := 10
		if !asker.Advised {
			well--
		}
		if len(peers) != peersTold || slices.IndexFunc(peers, func(p *api.Peer) bool { return p.Advised }) != well {
			t.Fatalf("%s: got %v, want all others that are not advised, and then up to %d", asker.Node, peers, peersTold)
		}
	}
}

func TestRosterChanges(t *testing.T) {
	r, all := newRoster(), fleetOf(3)
	list := func() []*api.Peer { return all }
	was, _ := r.pick("host-0000", t0, list)
	all[1].RoomBytes = 2
	r.change()
	if now, _ := r.pick("host-0000", t0.Add(rosterPace/2), list); now != was {
		t.Error("the list was made anew too soon")
	}
	if now, _ := r.pick("host-0000", t0.Add(rosterPace), list); now == was {
		t.Error("another room is the same list")
	}
	for i, change := range []func(){func() { all[1].VaultRoomBytes = new(int64(0)) }, func() { all[1].Places = []string{"spark"} },
		func() { all[1].LargestRoomBytes = 1 }, func() { all[1].LargestVaultRoomBytes = 2 }} {
		was, _ = r.pick("host-0000", t0.Add(time.Duration(2*i+2)*time.Second), list)
		change()
		r.change()
		if now, _ := r.pick("host-0000", t0.Add(time.Duration(2*i+3)*time.Second), list); now == was {
			t.Errorf("change %d of the room is the same list", i)
		}
	}
	was, _ = r.pick("host-0000", t0.Add(time.Minute), list)
	all[1].Advised = true
	r.change()
	if now, _ := r.pick("host-0000", t0.Add(2*time.Minute), list); now == was {
		t.Error("one that is advised to go is the same list")
	}
	all = all[:1]
	r.change()
	if version, peers := r.pick("host-0000", t0.Add(time.Hour), list); version == 0 || len(peers) != 0 {
		t.Errorf("got %d peers of version %d, want none", len(peers), version)
	}
}

func TestRoomMovesInQuarters(t *testing.T) {
	l := newLeases(nil, t0)
	for _, c := range []struct {
		room    int64
		changed bool
	}{{100, true}, {100, false}, {80, false}, {124, false}, {75, true}, {0, true}, {0, false}, {1, true}, {1, false}} {
		if changed, _ := l.beat("a", &api.Status{RoomBytes: c.room}, t0); changed != c.changed {
			t.Errorf("room %d: got changed %t, want %t", c.room, changed, c.changed)
		}
	}
	for _, c := range []struct {
		vault   *int64
		changed bool
	}{{nil, false}, {new(int64(0)), true}, {new(int64(0)), false}, {new(int64(100)), true}, {new(int64(80)), false}, {new(int64(75)), true}, {nil, true}} {
		if changed, _ := l.beat("a", &api.Status{RoomBytes: 1, VaultRoomBytes: c.vault}, t0); changed != c.changed {
			t.Errorf("vault %v: got changed %t, want %t", c.vault, changed, c.changed)
		}
	}
	for i, largest := range []int64{100, 80, 75, 0} {
		if changed, _ := l.beat("a", &api.Status{RoomBytes: 1, LargestRoomBytes: largest}, t0); changed != (i != 1) {
			t.Errorf("a block of %d bytes: got changed %t", largest, changed)
		}
	}
	stores := []*api.StoreInfo{{Name: "cache", Land: "vault"}, {Name: "spark", Land: "place"}}
	for _, want := range []bool{true, false} {
		if changed, _ := l.beat("a", &api.Status{RoomBytes: 1, Stores: stores}, t0); changed != want {
			t.Errorf("stores that land in place: got changed %t, want %t", changed, want)
		}
	}
}

// Whatever bytes an agent sends: they are refused, or they can be shown.
func FuzzRegister(f *testing.F) {
	good := &api.RegisterRequest{Node: "a", Incarnation: "i", PeerAddress: "[::1]:7412", Status: &api.Status{
		Notice: &api.Notice{Incident: "i", Remaining: durationpb.New(time.Minute)}, Disks: []*api.Disk{{Path: "/"}},
	}}
	data, err := proto.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(api.RegisterRequest)
		if proto.Unmarshal(data, r) != nil || checkRegister(r) != nil {
			return
		}
		n := node{Name: "a", ID: "node-1", State: Decommissioning, facts: facts{Incarnation: r.Incarnation, PeerAddress: r.PeerAddress, Zone: r.Zone},
			Decommission: &decommission{ID: "dec-1", Notice: noticeFrom(r.Status.GetNotice(), t0)}}
		text := written(t, api.NodeToJSON(nodeTo(n, pulse{heard: true, status: r.Status, said: t0, seen: t0}, t0.Add(time.Second))))
		if strings.ContainsRune(text, '\x1b') {
			t.Errorf("a control character got through: %q", text)
		}
		if _, err := proto.Marshal(nodeTo(n, pulse{status: r.Status}, t0)); err != nil {
			t.Error(err)
		}
	})
}

// A line of a manifest is what encoding/json would make of the entry.
func FuzzManifestLine(f *testing.F) {
	f.Add("s/a/x", int64(1), "moved", "b", "")
	f.Add("s/a/<x>&\"\\", int64(-1), "lost", "", "line\nend\x7f\u2028é\xff")
	f.Add("(what lies in /data)", int64(0), "skipped", "b", "busy")
	f.Fuzz(func(t *testing.T, id string, bytes int64, outcome, peer, reason string) {
		var want strings.Builder
		if err := json.NewEncoder(&want).Encode(manifest.Entry{ID: id, Bytes: bytes, Outcome: manifest.Outcome(outcome), Peer: peer, Reason: reason}); err != nil {
			t.Fatal(err)
		}
		got := entryFrom(&api.ManifestEntry{Id: id, Bytes: bytes, Outcome: outcome, Peer: peer, Reason: reason}).AppendLine(nil)
		if string(got) != want.String() {
			t.Errorf("got %s, want %s", got, want.String())
		}
	})
}

func FuzzReport(f *testing.F) {
	seed := func(r *api.ReportBlocksRequest) {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	seed(&api.ReportBlocksRequest{Landed: []*api.HeldBlock{{Id: "s/a/x", Bytes: 1, From: "b"}}, Gone: []string{"s/a/y"}})
	seed(&api.ReportBlocksRequest{Runs: []*api.HeldRun{{From: "b", Blocks: api.NewBlockRun("s/a/x", 1)}}, Gone: []string{"s/a/y"}})
	for _, run := range badRuns() {
		seed(&api.ReportBlocksRequest{Runs: []*api.HeldRun{{From: "b", Blocks: run}}})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(api.ReportBlocksRequest)
		if proto.Unmarshal(data, r) != nil || checkReport(r) != nil {
			return
		}
		b := newBlocks()
		if _, err := b.hear("a", wordsOf(nil, "a", r, func(string) bool { return false })); err != nil {
			t.Fatal(err)
		}
		for _, k := range b.of("a") {
			if checkID(k.id()) != nil {
				t.Errorf("got block %q", k.id())
			}
		}
	})
}
