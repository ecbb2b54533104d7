package migration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A peer that does not say how large a block may be takes one as large as all its room.
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

// A peer whose vault is full goes on taking blocks that land in place.
func TestFullVaultDoesNotStarveWhatHasItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), newNode(t, "b", with(sparkStore, "d0"), with(filesStore, "cache"))
		for i := range 50 {
			writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, 2<<20)
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%04d", i)), contentOf("f", 1000))
		}
		b.Room = vaultOf(0)
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1
		spark := func() int64 { return b.Vault.Count().Blocks }
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

// A block may fit only at a peer that ranks last, as most peers do in a fleet of one pool. It does not wait for the blocks of other peers
// until no time is left.
func TestWhoeverHasRoomForWhatWaitsIsSentTo(t *testing.T) {
	for name, c := range map[string]Peer{
		"of the pool that goes": {Zone: "z", Pool: "own"},
		"advised to go":         {Zone: "z", Pool: "other", Advised: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), map[string][]byte{}
				for i := range 200 {
					writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, 64<<10)
				}
				for i := range 20 {
					name := fmt.Sprintf("f-%04d", i)
					want["cache/-/"+name] = contentOf(name, 1000)
					write(t, filepath.Join(a.Dir, "cache", name), want["cache/-/"+name])
				}
				full := []*node{newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c", with(sparkStore, "d0"))}
				for _, n := range full {
					n.Room = vaultOf(0)
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

// A block that cannot be read here, or that the peer has otherwise, takes up no room there: the next one fits.
func TestBlockThatIsNotSentTakesNoRoom(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, a, b *node, name string){
		"its file is gone": func(t *testing.T, a, _ *node, name string) {
			if err := os.Remove(filepath.Join(a.Dir, "cache", name)); err != nil {
				t.Error(err)
			}
		},
		"the peer has another": func(t *testing.T, _, b *node, name string) {
			write(t, filepath.Join(b.Dir, "cache", name), contentOf("other", 60_000))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
				for i := range 10 {
					write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%d", i)), contentOf("f", 60_000))
				}
				b.Room = roomFor(100_000)
				tr := newTrip(t, a, b)
				tr.cfg.Connections = 1
				dials := 0
				tr.dials = func(context.Context, Peer) error {
					if dials++; dials > 1 {
						return nil
					}
					time.Sleep(time.Second) // all is planned by then
					for i := range 10 {
						spoil(t, a, b, fmt.Sprintf("f-%d", i))
					}
					return nil
				}
				if tr.run(within(t, time.Minute)); dials > 1 {
					t.Errorf("the peer was asked %d times what it has room for, want once", dials)
				}
			})
		})
	}
}
