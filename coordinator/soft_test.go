package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

func fleetOf(n int) []*api.Peer {
	var peers []*api.Peer
	for i := range n {
		peers = append(peers, &api.Peer{Node: fmt.Sprintf("host-%04d", i), Address: "h:1", Zone: fmt.Sprint("z", i/100), RoomBytes: 1})
	}
	return peers
}

func TestRosterSpreads(t *testing.T) {
	r, all := &roster{stale: true}, fleetOf(300)
	told := map[string]int{}
	for _, asker := range slices.Clone(all) {
		version, peers := r.pick(asker.Node, t0, func() []*api.Peer { return all })
		if len(peers) != PeersTold || version == 0 {
			t.Fatalf("got %d peers of version %d, want %d", len(peers), version, PeersTold)
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
	if len(told) != len(all) || most > 2*PeersTold {
		t.Errorf("got %d nodes told, one of them %d times, want all about %d times", len(told), most, PeersTold)
	}
}

// When nearly a whole fleet is advised to go, agents' lists of peers begin with the nodes that are not.
func TestRosterNamesAdvisedNodesLast(t *testing.T) {
	all := fleetOf(300)
	for i, p := range all {
		p.Advised = i%30 != 0
	}
	for _, asker := range all {
		_, peers := (&roster{stale: true}).pick(asker.Node, t0, func() []*api.Peer { return slices.Clone(all) })
		well := 10
		if !asker.Advised {
			well--
		}
		if len(peers) != PeersTold || slices.IndexFunc(peers, func(p *api.Peer) bool { return p.Advised }) != well {
			t.Fatalf("%s: got %v, want all others that are not advised, and then up to %d", asker.Node, peers, PeersTold)
		}
	}
}

func TestRosterChanges(t *testing.T) {
	r, all := &roster{stale: true}, fleetOf(3)
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
	l := newLeases(0, nil, t0)
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

// Whatever bytes an agent sends, they are refused, or they can be shown.
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
		n := registry.Node{Name: "a", ID: "node-1", State: registry.Decommissioning, Facts: registry.Facts{Incarnation: r.Incarnation, PeerAddress: r.PeerAddress, Zone: r.Zone},
			Decommission: &registry.Decommission{ID: "dec-1", Notice: noticeFrom(r.Status.GetNotice(), t0)}}
		text := written(t, api.NodeToJSON(nodeTo(n, pulse{heard: true, status: r.Status, said: t0, seen: t0}, t0.Add(time.Second))))
		if strings.ContainsRune(text, '\x1b') {
			t.Errorf("a control character got through: %q", text)
		}
		if _, err := proto.Marshal(nodeTo(n, pulse{status: r.Status}, t0)); err != nil {
			t.Error(err)
		}
	})
}

// A line of a manifest is what encoding/json makes of the entry.
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
		b := blockmap.New()
		if _, err := b.Hear("a", wordsOf(nil, "a", r, func(string) bool { return false })); err != nil {
			t.Fatal(err)
		}
		for _, k := range b.Of("a") {
			if checkID(k.ID()) != nil {
				t.Errorf("got block %q", k.ID())
			}
		}
	})
}
