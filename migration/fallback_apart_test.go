package migration

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// Blocks that no peer has room for go to the fallback while peers still take the others: afterwards there may be no time left.
func TestFallbackTakesBesidePeersWhatTheyHaveNoRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), newNode(t, "b", with(sparkStore, "d0"), with(filesStore, "cache"))
		shuffles, cache := map[string][]byte{}, map[string][]byte{}
		for i := range 40 {
			for name, content := range writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, 1<<20) {
				shuffles["spark/blockmgr-x/"+name] = content
			}
			name := fmt.Sprintf("f-%04d", i)
			cache["cache/-/"+name] = contentOf(name, 1000)
			write(t, filepath.Join(a.Dir, "cache", name), cache["cache/-/"+name])
		}
		b.Room = vaultOf(0)
		s, link := newLarder(), rate.NewLimiter(1<<20, 16<<10)
		tr := newTrip(t, a, b)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		sum, entries := tr.run(within(t, 30*time.Second)) // ten seconds too few for all map outputs
		wantInFallback(t, tr.cfg.Fallback, cache, entries)
		if sum.Moved.Blocks < 40+20 {
			t.Errorf("got %+v, want the cache in the fallback, and most of the map outputs at the peer", sum)
		}
		for name := range maps.Keys(s.things) {
			if strings.Contains(name, "shuffle_") {
				t.Errorf("%s went to the fallback, and the peer takes it", name)
			}
		}
	})
}

// A block that is too large for any peer goes to the fallback without waiting until the small ones are at the peer.
func TestFallbackTakesBesidePeersWhatIsTooLargeForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 40, 512<<10)
		write(t, filepath.Join(a.Dir, "cache", "large"), contentOf("large", 22<<20))
		b := newNode(t, "b")
		b.Room = func(string) int64 { return 21 << 20 } // the room stays the same, whatever has landed
		s, link := newLarder(), rate.NewLimiter(1<<20, 16<<10)
		tr := newTrip(t, a, b)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 20*time.Second))
		wantInFallback(t, tr.cfg.Fallback, map[string][]byte{"cache/-/large": contentOf("large", 22<<20)}, entries)
	})
}

// A peer's vault is full for a moment, as it is before small map outputs become files. The peer is asked again before its blocks go to the
// fallback.
func TestVaultThatHasRoomAgainComesBeforeTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0"), with(filesStore, "cache")), newNode(t, "b", with(sparkStore, "d0"), with(filesStore, "cache"))
		for i := range 40 {
			writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, i, 1<<20)
		}
		for i := range 400 {
			name := fmt.Sprintf("f-%04d", i)
			write(t, filepath.Join(a.Dir, "cache", name), contentOf(name, 1000))
		}
		began := time.Now()
		b.Room = func(p string) int64 {
			if strings.HasSuffix(p, "/vault") && time.Since(began) < askAgain-100*time.Millisecond {
				return 5000
			}
			return 1 << 40
		}
		s, link := newLarder(), rate.NewLimiter(1<<20, 16<<10)
		tr := newTrip(t, a, b)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 30*time.Second))
		there := 0
		for id, e := range outcome(t, entries, manifest.Moved) {
			if strings.HasPrefix(id, "cache/") && e.Peer == "b" {
				there++
			}
		}
		if there != 400 {
			t.Errorf("%d of the cache's 400 blocks are at the peer, which has room for all", there)
		}
		s.wantUnused(t)
	})
}

// Peers come before the fallback. A block is not left to the fallback while a peer may have room for it that is not sent to yet, or has not
// greeted yet.
func TestFallbackLeavesWhatAnotherPeerHasRoomFor(t *testing.T) {
	GB := int64(1 << 30)
	now := time.Now()
	none := int64(0)
	for name, c := range map[string]struct {
		peer peerState
		left bool // to the fallback
	}{
		"has no room in its vault":     {peerState{Peer: Peer{RoomBytes: GB, VaultBytes: &none, Places: []string{"spark"}}}, true},
		"has a place for the store":    {peerState{Peer: Peer{RoomBytes: GB, VaultBytes: &none, Places: []string{"cache"}}}, false},
		"does not tell of its vault":   {peerState{Peer: Peer{RoomBytes: GB}}, false},
		"is gone":                      {peerState{Peer: Peer{RoomBytes: GB}, gone: true}, true},
		"has yet to greet":             {peerState{lanes: 1, tried: now}, false},
		"has not greeted for long":     {peerState{lanes: 1, tried: now.Add(-peerTimeout)}, true},
		"is in trouble":                {peerState{failures: 1, tried: now}, false},
		"has been in trouble for long": {peerState{failures: 9, tried: now.Add(-fallbackPatience)}, true},
		"says that it is full":         {peerState{failures: 1, tried: now, declines: now}, true},
	} {
		ps := &peers{known: map[string]*peerState{"b": &c.peer, "full": {Peer: Peer{RoomBytes: GB, VaultBytes: &none}}}, carriers: newCarriers(nil, nil)}
		if got := ps.roomFor("cache"); (got == 0) != c.left {
			t.Errorf("a peer that %s: got room for %d", name, got)
		}
	}
}

// Nor is a block left to the fallback while a peer that may have room for it is being asked anew, whatever was granted to the peer's other
// lanes.
func TestFallbackWaitsForAPeerThatIsAskedAnew(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		asked time.Time
		left  bool // to the fallback
	}{
		"not asked":          {time.Time{}, true},
		"asked":              {now, false},
		"asked long ago":     {now.Add(-dialTimeout), true},
		"asked, and greeted": {now.Add(-2 * fullSettles), true},
	} {
		b := &peerState{Peer: Peer{RoomBytes: 1 << 30}, lanes: 1, open: 1, asked: c.asked}
		ps := &peers{known: map[string]*peerState{"b": b}, carriers: newCarriers(nil, nil)}
		ps.carriers.all[&lane{peer: b, greeted: now.Add(-fullSettles)}] = true
		if got := ps.roomFor("cache"); (got == 0) != c.left {
			t.Errorf("a peer that is %s: got room for %d", name, got)
		}
	}
}

// A peer had no room for the blocks that were found first, and takes those that were found later. The later ones are not left to the
// fallback.
func TestPeerThatFindsSomethingAfterAllHasNotDeclined(t *testing.T) {
	ps := &peers{cargo: cargo{log: slog.New(slog.DiscardHandler)}, known: map[string]*peerState{}}
	ps.fan = newFan("", "", ps.known)
	ps.fan.hear("a", []Peer{{Node: "b"}})
	b := ps.known["b"]
	ps.took(time.Now())
	ps.note(b, errPeerFull)
	b.declines = time.Now() // it has declined for so long
	if taken, hoped := ps.take(); taken || hoped {
		t.Errorf("got %t, %t of a peer that is full, want nothing of it", taken, hoped)
	}
	ps.fits(b)
	if _, hoped := ps.take(); !hoped {
		t.Error("it sends to the peer, and all goes to the fallback")
	}
}

// A name that the storage cannot have is a fault of that block alone: the other blocks go there, and the account has its reason.
func TestNameThatAFallbackCannotHaveHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		write(t, filepath.Join(a.Dir, "cache", "long"), contentOf("long", 1000))
		s := newLarder()
		s.trip = func(name string) error {
			if strings.HasSuffix(name, "/long") {
				return fmt.Errorf("too long a key: %w", fs.ErrInvalid)
			}
			return nil
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Streams = 1
		_, entries := tr.run(within(t, 2*time.Second))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if e := outcome(t, entries, manifest.Lost)["cache/-/long"]; !strings.Contains(e.Reason, "fallback:spill: too long a key") {
			t.Errorf("got %+v, want it lost for its name", e)
		}
	})
}

// A peer is asked anew only between two blocks. While it is sent a large block, blocks that are larger than any grant so far do not wait
// for that: they go to the fallback.
func TestFallbackTakesWhatIsTooLargeForAPeerThatIsToBeAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := newNode(t, "a", with(filesStore, "cache")), map[string][]byte{}
		for i := range 6 {
			name := fmt.Sprintf("large-%d", i)
			want["cache/-/"+name] = contentOf(name, 22<<20)
			write(t, filepath.Join(a.Dir, "cache", name), want["cache/-/"+name])
		}
		for name, size := range map[string]int{"first": 14 << 20, "second": 15 << 20} {
			write(t, filepath.Join(a.Dir, "cache", name), contentOf(name, size))
		}
		b := newNode(t, "b")
		b.Room = func(string) int64 { return 21 << 20 } // the room stays the same, whatever has landed
		s, link := newLarder(), rate.NewLimiter(1<<20, 16<<10)
		s.rate = 16 << 20
		tr := newTrip(t, a, b)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Streams, tr.cfg.Connections = 1, 1
		_, entries := tr.run(within(t, 16*time.Second))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}
