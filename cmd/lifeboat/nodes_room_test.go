package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// Nodes that go at once have no room for each other: only nodes of other pools and zones count, and of those only schedulable ones.
func TestRoomForAPoolThatGoesAtOnce(t *testing.T) {
	const gib = 1 << 30
	node := func(zone, pool string, has, room int64) *api.Node {
		return &api.Node{
			Zone: zone, Pool: pool, State: "ACTIVE", Schedulable: true,
			Status: &api.Status{StoredBytes: has, RoomBytes: room, Stores: []*api.StoreInfo{{Name: "cache", Layout: "files", Land: "vault"}}},
		}
	}
	print := func(nodes []*api.Node) (string, string) {
		var b bytes.Buffer
		all := roomTogether(nodes)
		if err := printRoom(&b, show.Tables, all); err != nil {
			t.Fatal(err)
		}
		if err := lostTogether(all); err != nil {
			return b.String(), err.Error()
		}
		return b.String(), ""
	}
	nodes := []*api.Node{
		node("a", "spot", 4*gib, 10*gib), node("a", "spot", 4*gib, 10*gib), node("a", "fixed", 0, 3*gib), node("b", "spot", gib, 4*gib),
	}
	said, lost := print(nodes)
	want := `IF THIS GOES AT ONCE  NODES  HAVE AT LEAST  ROOM OF OTHERS
zone a                3      8.0 GiB        4.0 GiB         4.0 GiB WOULD BE LOST
pool fixed of a       1      0 B            24.0 GiB
pool spot of a        2      8.0 GiB        7.0 GiB         1.0 GiB WOULD BE LOST
zone b                1      1.0 GiB        23.0 GiB
pool spot of b        1      1.0 GiB        23.0 GiB
`
	if said != want || !strings.Contains(lost, "zone a, pool spot of a could not go at once") {
		t.Errorf("got\n%s%s\nwant\n%s", said, lost, want)
	}
	if said, lost := print([]*api.Node{node("", "", gib, gib)}); !strings.Contains(said, "\nall without a zone  ") || !strings.Contains(lost, "have more nodes elsewhere") {
		t.Errorf("of nodes that tell no zone got\n%s%s", said, lost)
	}
	nodes[3].Schedulable = false
	for _, n := range nodes[:3] {
		n.Status.Fallback = "spill"
	}
	if said, lost := print(nodes); !strings.Contains(said, "5.0 GiB for the fallback") || lost != "" {
		t.Errorf("with a fallback got\n%s%s", said, lost)
	}
	for _, n := range nodes[:3] { // a directory, and they do not ask at the same time
		n.Status.FallbackRoomBytes = new(int64(2 * gib))
	}
	nodes[1].Status.FallbackRoomBytes = new(int64(gib))
	if said, lost := print(nodes); !strings.Contains(said, "1.0 GiB for the fallback, 4.0 GiB WOULD BE LOST") || !strings.Contains(lost, "pool spot of a could not go at once") {
		t.Errorf("with a directory of 1 GiB got\n%s%s", said, lost)
	}
	nodes[2].Status.Fallback = "another"
	if said, _ := print(nodes); !strings.Contains(said, "3.0 GiB for the fallback, 5.0 GiB WOULD BE LOST") {
		t.Errorf("with two directories got\n%s", said)
	}
	nodes[2].Status.FallbackRoomBytes = nil
	if said, _ := print(nodes); !strings.Contains(said, "8.0 GiB for the fallback\n") {
		t.Errorf("with a directory and a bucket got\n%s", said)
	}
	nodes[1].Status.FallbackRoomBytes = new(int64(0)) // it takes nothing
	nodes[2].Status.VaultRoomBytes = new(int64(gib))  // of a store that is not its own
	nodes[0].Status.Fallback = ""
	if said, _ := print(nodes); !strings.Contains(said, "3.0 GiB (vault: 1.0 GiB)    7.0 GiB WOULD BE LOST") {
		t.Errorf("with a small vault got\n%s", said)
	}
	nodes[1].State, nodes[1].Status.Drain = "DECOMMISSIONING", &api.DrainProgress{BytesMoved: 3 * gib}
	if said, _ := print(nodes); !strings.Contains(said, "pool spot of a        2      5.0 GiB") {
		t.Errorf("with one that has moved most of it got\n%s", said)
	}
	nodes[1].State = "ACTIVE"
	nodes[0].Status.StoredBlocks = 1 << 24 // tiny ones
	if said, _ := print(nodes); !strings.Contains(said, "14.9 GiB") {
		t.Errorf("of tiny blocks got\n%s", said)
	}
}
