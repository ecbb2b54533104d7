package migration

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

// vaultOf is the room of a node whose vault is on a small disk, and whose stores are on large ones.
func vaultOf(bytes int64) func(string) int64 {
	return func(p string) int64 {
		if strings.HasSuffix(p, "/vault") {
			return bytes
		}
		return 1 << 40
	}
}

// A node grants and tells what its vault has room for beside what lands in its place.
func TestGrantTellsTheRoomInTheVault(t *testing.T) {
	n := newNode(t, "n", with(sparkStore, "d0"), with(filesStore, "cache"))
	n.room = vaultOf(300)
	n.receive(t)
	g := n.receiver.grant(false)
	if all, vault := n.receiver.Room(); all.Bytes != 1<<40 || vault.Bytes != 300 || g.VaultBytes != 300 || fmt.Sprint(g.Places) != "[spark]" {
		t.Errorf("got %d, %d in the vault, granted %+v, want the vault's 300 apart from spark's", all.Bytes, vault.Bytes, g)
	}
	r := roomIn(g)
	for store, want := range map[string]int64{"spark": 1 << 40, "cache": 300, "unknown": 300} {
		if got := r.Left(store); got != want {
			t.Errorf("%s: got room for %d, want %d", store, got, want)
		}
	}
}

// A node has the room of all its file systems, of each once, and of a full one none; a block, that of the roomiest.
func TestRoomIsThatOfAllFileSystems(t *testing.T) {
	n := newNode(t, "n", with(sparkStore, "d0", "d1", "d2"))
	dir := func(name string) string { return filepath.Join(n.dir, name) }
	for _, p := range []string{"d1/vault", "d3/vault"} {
		n.more = append(n.more, dir(p))
	}
	n.reopen(t)
	disks := newFakeDisks(0)
	for p, room := range map[string]int64{"vault": 100, "d0": 500, "d1": 700, "d1/vault": 700, "d2": 690, "d3/vault": 90} {
		disks.room[dir(p)] = room
	}
	disks.disk = map[string]string{dir("d1/vault"): dir("d1"), dir("d2"): dir("d1")}
	n.disks, n.room = disks, func(p string) int64 { return disks.room[p] }
	n.receive(t)
	for _, c := range []struct {
		full       string
		all, vault Room
	}{
		{"", Room{100 + 500 + 700 + 90, 700}, Room{100 + 700 + 90, 700}},
		{"d0", Room{100 + 700 + 90, 700}, Room{100 + 700 + 90, 700}},
		{"d1/vault", Room{100 + 500 + 700 + 90, 700}, Room{100 + 90, 100}},
	} {
		disks.full = map[string]bool{dir(c.full): true}
		if all, vault := n.receiver.Room(); all != c.all || vault != c.vault {
			t.Errorf("%q full: got %v, in the vault %v, want %v and %v", c.full, all, vault, c.all, c.vault)
		}
	}
	disks.full = nil
	n.receiver.budget.bytes = 600
	if all, vault := n.receiver.Room(); all != (Room{480, 480}) || vault != (Room{480, 480}) {
		t.Errorf("got %v, in the vault %v, want what the quota leaves", all, vault)
	}
	if g := n.receiver.grant(true); g.RoomBytes != 600 || g.VaultBytes != 600 || !g.Quota {
		t.Errorf("granted %+v to a drain without a coordinator, want the whole quota", g)
	}
	n.receiver.budget.bytes = 1 << 40
	if g := n.receiver.grant(false); g.Quota {
		t.Errorf("granted %+v where disks hold less than the quota, want that they bound it", g)
	}
}

// Where it is not told how large a block may be, it may be as large as all the room.
func TestMostForABlockIsThatOfItsPlace(t *testing.T) {
	for _, c := range []struct {
		name         string
		peer         Peer
		cache, spark int64
	}{
		{"all told", Peer{RoomBytes: 900, VaultBytes: new(int64(300)), LargestBytes: 500, LargestVaultBytes: 200, Places: []string{"spark"}}, 200, 500},
		{"not told", Peer{RoomBytes: 900, VaultBytes: new(int64(300)), Places: []string{"spark"}}, 300, 900},
		{"no room in the vault", Peer{RoomBytes: 900, VaultBytes: new(int64(0)), LargestBytes: 500, Places: []string{"spark"}}, 0, 500},
		{"told, and less since", Peer{RoomBytes: 100, LargestBytes: 500}, 100, 100},
	} {
		if cache, spark := c.peer.MostFor("cache"), c.peer.MostFor("spark"); cache != c.cache || spark != c.spark {
			t.Errorf("%s: got %d and %d, want %d and %d", c.name, cache, spark, c.cache, c.spark)
		}
	}
}

// A peer whose vault is full goes on taking what lands in its place.
func TestFullVaultDoesNotStarveWhatHasItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), newNode(t, "b", with(sparkStore, "d0"), with(filesStore, "cache"))
		for i := range 50 {
			writeMapOutput(t, []string{filepath.Join(a.dir, "d0/blockmgr-x")}, 1, i, 2<<20)
			write(t, filepath.Join(a.dir, "cache", fmt.Sprintf("f-%04d", i)), contentOf("f", 1000))
		}
		b.room = vaultOf(0)
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1
		spark := func() int64 { return b.receiver.cfg.Vault.Count().Blocks }
		time.AfterFunc(time.Second, func() {
			if n := spark(); n != 50 {
				t.Errorf("%d map outputs are there after a second, want 50", n)
			}
		})
		_, entries := tr.run(within(t, 20*time.Second))
		if lost, moved := outcome(t, entries, manifest.Lost), outcome(t, entries, manifest.Moved); len(moved) != 50 || len(lost) != 50 {
			t.Errorf("got %d moved, %d lost, want the 50 map outputs moved and no more", len(moved), len(lost))
		}
	})
}

// What only a peer has room for that is else sent to last does not wait for what the others take until there is no time left: in a fleet of
// one pool that are most.
func TestWhoeverHasRoomForWhatWaitsIsSentTo(t *testing.T) {
	for name, c := range map[string]Peer{
		"of the pool that goes": {Zone: "z", Pool: "own"},
		"advised to go":         {Zone: "z", Pool: "other", Advised: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), map[string][]byte{}
				for i := range 200 {
					writeMapOutput(t, []string{filepath.Join(a.dir, "d0/blockmgr-x")}, 1, i, 64<<10)
				}
				for i := range 20 {
					name := fmt.Sprintf("f-%04d", i)
					want["cache/-/"+name] = contentOf(name, 1000)
					write(t, filepath.Join(a.dir, "cache", name), want["cache/-/"+name])
				}
				full := []*node{newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c", with(sparkStore, "d0"))}
				for _, n := range full {
					n.room = vaultOf(0)
				}
				roomy := newNode(t, "d", with(sparkStore, "d0"))
				tr := newTrip(t, a, full[0], full[1], roomy)
				tr.cfg.Zone, tr.cfg.Pool, tr.cfg.Advised = "z", "own", func() bool { return true }
				list := tr.cfg.Peers()
				for i := range list {
					is := &list[i]
					is.RoomBytes, is.VaultBytes, is.Places, is.Zone, is.Pool = 1<<30, new(int64), []string{"spark"}, "z", c.Pool
				}
				list[2].VaultBytes, list[2].Advised = new(int64(1<<30)), c.Advised
				three := after(3*time.Second, func() []Peer { return list })
				tr.cfg.Peers = func() []Peer { return append(list[:2:2], three()...) }
				tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, rate.NewLimiter(64<<10, 16<<10)} }
				_, entries := tr.run(within(t, 20*time.Second))
				wantThere(t, want, entries, roomy)
			})
		})
	}
}
