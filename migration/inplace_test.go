package migration

import (
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// Spark finds blocks that landed at a peer with its store, and none at other peers. The others get only blocks that would otherwise have no
// place, or no time.
func TestBlocksGoToPeersThatHaveTheirStore(t *testing.T) {
	const outputs, size = 200, 64 << 10
	for name, c := range map[string]struct {
		room   int64         // at the peer that has the store
		away   bool          // it does not answer
		less   bool          // it was named with the store, and does not have it
		untold bool          // peers do not say where blocks would land
		silent time.Duration // when the peer falls silent
		within time.Duration
		most   int // bounds of how many map outputs may go to the other peer
		least  int
	}{
		"it has room":         {room: 1 << 30, within: time.Minute},
		"it has room for few": {room: 40 * size, within: time.Minute, least: 50, most: 190},
		"it is away":          {room: 1 << 30, away: true, within: time.Minute, least: outputs, most: outputs},
		"there is no time":    {room: 1 << 30, within: 10 * time.Second, least: 10, most: 150},
		"it had it":           {room: 1 << 30, less: true, within: time.Minute, least: 1, most: outputs},
		"it hangs":            {room: 1 << 30, silent: 3 * time.Second, within: 20 * time.Second, least: 1, most: outputs},
		"none was told of":    {room: 1 << 30, less: true, untold: true, within: time.Minute, least: 1, most: outputs},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache"))
				for i := range outputs {
					writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, size)
				}
				for i := range 10 {
					write(t, filepath.Join(a.Dir, "cache", string(rune('a'+i))), []byte("plain"))
				}
				has, lacks := newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c", with(filesStore, "cache"))
				if c.less {
					has = newNode(t, "b", with(filesStore, "cache"))
				}
				has.Room = func(string) int64 { return c.room }
				tr := newTrip(t, a, lacks, has)
				list := tr.cfg.Peers()
				list[0].RoomBytes, list[0].VaultBytes = 1<<30, new(int64(1<<30))
				list[1].RoomBytes, list[1].VaultBytes, list[1].Places = c.room, new(c.room), []string{"spark"}
				if c.untold {
					list[0].VaultBytes, list[1].VaultBytes, list[1].Places = nil, nil, nil
				}
				if c.away {
					tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) { conn.Close() }}
				}
				if c.silent > 0 {
					at := time.Now().Add(c.silent)
					has.mangle = func(conn net.Conn) net.Conn { return silentFrom{conn, at} }
				}
				tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, rate.NewLimiter(512<<10, 16<<10)} }
				_, entries := tr.run(within(t, c.within))
				moved, astray := 0, 0
				for _, e := range entries {
					switch {
					case e.Outcome != manifest.Moved:
						t.Errorf("%s: %s, %s", e.ID, e.Outcome, e.Reason)
					case inventory.BlockID(e.ID).Store() == "spark" && e.Peer == "c":
						astray++
						fallthrough
					default:
						moved++
					}
				}
				if moved != outputs+10 || astray < c.least || astray > c.most {
					t.Errorf("%d blocks moved, %d map outputs to a node without their store, want %d, and %d to %d", moved, astray, outputs+10, c.least, c.most)
				}
			})
		})
	}
}

type silentFrom struct {
	net.Conn
	at time.Time
}

func (c silentFrom) Read(p []byte) (int, error) {
	if !time.Now().Before(c.at) {
		time.Sleep(time.Minute)
	}
	return c.Conn.Read(p)
}

// A peer with the store may rank last, while enough other peers are in use. It is sent to all the same, because the others leave the
// waiting blocks to it.
func TestBlocksDoNotWaitForAPeerThatIsNotSentTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outputs, size = 200, 64 << 10
		a := newNode(t, "a", with(sparkStore, "d0"))
		for i := range outputs {
			writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, size)
		}
		tr := newTrip(t, a, newNode(t, "b"), newNode(t, "c"), newNode(t, "d", with(sparkStore, "d0")))
		tr.cfg.Zone, tr.cfg.Pool = "z", "own"
		list := tr.cfg.Peers()
		for i := range list {
			list[i].RoomBytes, list[i].VaultBytes, list[i].Zone, list[i].Pool = 1<<30, new(int64(1<<30)), "z", "other"
		}
		list[2].Places, list[2].Pool = []string{"spark"}, "own"
		three := after(time.Second, func() []Peer { return list })
		tr.cfg.Peers = func() []Peer { return append(list[:2:2], three()...) }
		link := rate.NewLimiter(1<<20, 16<<10)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		began := time.Now()
		_, entries := tr.run(within(t, 5*time.Minute))
		inPlace := 0
		for _, e := range outcome(t, entries, manifest.Moved) {
			if e.Peer == "d" {
				inPlace++
			}
		}
		if took := time.Since(began); took > 30*time.Second || inPlace < outputs/2 {
			t.Errorf("took %v, %d map outputs to the peer with their store, want most of %d", took, inPlace, outputs)
		}
	})
}

// A peer for which there are no blocks does not count as in use if that would keep others from being used.
func TestFanIsNotFullOfPeersThatLeaveAllToOthers(t *testing.T) {
	now := time.Now()
	lack, have := somePeers(8, "z", "lack"), somePeers(3, "z", "have")
	for i := range lack {
		lack[i].VaultBytes = new(int64(1 << 40))
	}
	f := testFan("z1", "own", lack...)
	draw(f, now)
	f.hear("self", append(lack, have...))
	var peers []*peerState
	for _, p := range have {
		peers = append(peers, f.peers[p.Node])
	}
	f.inPlace = keptPlaces{stores: map[string][]*peerState{"spark": peers}}
	if got := draw(f, now)["have"]; got != 1 {
		t.Errorf("%d peers that blocks are left to are sent to while there is more for the others, want one", got)
	}
	f.inPlace.only = true
	if got := draw(f, now)["have"]; got != 2 {
		t.Errorf("%d more are sent to now that there is not, want both", got)
	}
	peers[1].surplus, peers[2].surplus = true, true
	f.width = 0
	f.shed(now)
	if peers[0].surplus {
		t.Error("the last peer that blocks are left to was let go of")
	}
}

// A peer that hangs has ten seconds to answer, a third of a short notice. Blocks that are left to it do not wait for that: other peers have
// time for them.
func TestBlocksDoNotWaitForAPeerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(sparkStore, "d0"))
		for i := range 400 {
			writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, 64<<10)
		}
		b, c := newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c")
		b.plain, c.plain = true, true
		tr := newTrip(t, a, b, c)
		list := tr.cfg.Peers()
		for i := range list {
			list[i].RoomBytes, list[i].VaultBytes = 1<<30, new(int64(1<<30))
		}
		list[0].Places = []string{"spark"}
		b.mangle = func(conn net.Conn) net.Conn { return stuck(conn, 1<<20) }
		links := map[string]*rate.Limiter{"b": rate.NewLimiter(4<<20, 16<<10), "c": rate.NewLimiter(1200<<10, 16<<10)}
		tr.links = func(p Peer, conn net.Conn) net.Conn { return narrowLink{conn, links[p.Node]} }
		if sum, _ := tr.run(within(t, 30*time.Second)); sum.Lost.Blocks > 4 { // a few blocks are sent to the peer that hangs
			t.Errorf("%d of 400 blocks are lost, for which there was time", sum.Lost.Blocks)
		}
	})
}
