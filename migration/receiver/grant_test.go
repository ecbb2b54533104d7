package receiver

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/plan"
)

// A node grants, and reports, how much room its vault has beside the places in its stores.
func TestGrantTellsTheRoomInTheVault(t *testing.T) {
	n := newNode(t, "n", with(sparkStore, "d0"), with(filesStore, "cache"))
	n.Room = vaultOf(300)
	n.receive(t)
	g := n.receiver.grant(false)
	if all, vault := n.receiver.Room(); all.Bytes != 1<<40 || vault.Bytes != 300 || g.VaultBytes != 300 || fmt.Sprint(g.Places) != "[spark]" {
		t.Errorf("got %d, %d in the vault, granted %+v, want the vault's 300 apart from spark's", all.Bytes, vault.Bytes, g)
	}
	r := plan.Room{Most: g.RoomBytes, Vault: g.VaultBytes, Places: g.Places}
	for store, want := range map[string]int64{"spark": 1 << 40, "cache": 300, "unknown": 300} {
		if got := r.Left(store); got != want {
			t.Errorf("%s: got room for %d, want %d", store, got, want)
		}
	}
}

// A node's room is that of all its file systems, each counted once, and a full one as nothing; one block has the room
// of the roomiest.
func TestRoomIsThatOfAllFileSystems(t *testing.T) {
	n := newNode(t, "n", with(sparkStore, "d0", "d1", "d2"))
	dir := func(name string) string { return filepath.Join(n.Dir, name) }
	for _, p := range []string{"d1/vault", "d3/vault"} {
		n.More = append(n.More, dir(p))
	}
	n.Reopen(t)
	disks := newFakeDisks(0)
	for p, room := range map[string]int64{"vault": 100, "d0": 500, "d1": 700, "d1/vault": 700, "d2": 690, "d3/vault": 90} {
		disks.Room[dir(p)] = room
	}
	disks.Shared = map[string]string{dir("d1/vault"): dir("d1"), dir("d2"): dir("d1")}
	n.Disks, n.Room = disks, func(p string) int64 { return disks.Room[p] }
	n.receive(t)
	for _, c := range []struct {
		full       string
		all, vault Room
	}{
		{"", Room{100 + 500 + 700 + 90, 700}, Room{100 + 700 + 90, 700}},
		{"d0", Room{100 + 700 + 90, 700}, Room{100 + 700 + 90, 700}},
		{"d1/vault", Room{100 + 500 + 700 + 90, 700}, Room{100 + 90, 100}},
	} {
		disks.Full = map[string]bool{dir(c.full): true}
		if all, vault := n.receiver.Room(); all != c.all || vault != c.vault {
			t.Errorf("%q full: got %v, in the vault %v, want %v and %v", c.full, all, vault, c.all, c.vault)
		}
	}
	disks.Full = nil
	n.receiver.budget.bytes = 600
	if all, vault := n.receiver.Room(); all != (Room{480, 480}) || vault != (Room{480, 480}) {
		t.Errorf("got %v, in the vault %v, want what the quota leaves", all, vault)
	}
	if g := n.receiver.grant(true); g.RoomBytes != 600 || g.VaultBytes != 600 {
		t.Errorf("granted %+v to a drain without a coordinator, want the whole quota", g)
	}
}
