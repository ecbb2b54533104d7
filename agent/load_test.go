package agent

import (
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// How many bytes find no room depends on where each block may land: some only in their place, others also in the vault,
// which has room of its own.
func TestWhatFindsNoRoom(t *testing.T) {
	told := func(room, vault int64, places ...string) migration.Peer {
		return migration.Peer{RoomBytes: room, VaultBytes: &vault, Places: places}
	}
	for _, c := range []struct {
		what  string
		of    map[string]int64
		peers []migration.Peer
		want  int64
	}{
		{"nobody", map[string]int64{"cache": 7}, nil, 7},
		{"nothing", nil, nil, 0},
		{"a small vault beside a large disk", map[string]int64{"cache": 1200}, []migration.Peer{told(50_000, 300, "spark")}, 900},
		{"what has its place there", map[string]int64{"spark": 1200}, []migration.Peer{told(50_000, 300, "spark")}, 0},
		{"what has its place with one of two", map[string]int64{"spark": 1200}, []migration.Peer{told(1000, 0, "spark"), told(1000, 100)}, 100},
		{"several in one vault", map[string]int64{"cache": 200, "logs": 200, "spark": 1}, []migration.Peer{told(50_000, 300, "spark")}, 100},
		{"all together", map[string]int64{"cache": 300, "spark": 1000}, []migration.Peer{told(1200, 300, "spark")}, 100},
		{"one who does not tell", map[string]int64{"cache": 1200}, []migration.Peer{{RoomBytes: 1000}, told(50_000, 100, "spark")}, 100},
	} {
		l := load{of: map[string]stock{}}
		for store, bytes := range c.of {
			l.of[store] = stock{bytes, bytes}
		}
		if got := l.wants(c.peers); got != c.want {
			t.Errorf("%s: got %d without room, want %d", c.what, got, c.want)
		}
	}
}

// A block that no peer has room for in one place is lost, however much room the peers have together. That no peer has any
// room is reported, too.
func TestLargeBlocksFindNoRoom(t *testing.T) {
	vault := int64(900)
	several := migration.Peer{RoomBytes: 5000, VaultBytes: &vault, Places: []string{"spark"}, LargestBytes: 1000, LargestVaultBytes: 300}
	block := func(id string, members ...int64) *inventory.Block {
		b := &inventory.Block{ID: inventory.BlockID(id)}
		for _, n := range members {
			b.Members = append(b.Members, inventory.Member{Bytes: n})
		}
		return b
	}
	blocks := []*inventory.Block{block("cache/-/small", 300), block("cache/-/large", 301), block("spark/b/shuffle_1_2_0", 900, 200), block("spark/b/shuffle_1_3_0", 1001, 1)}
	for _, c := range []struct {
		what         string
		peers        []migration.Peer
		large, wants int64
	}{
		{"several disks", []migration.Peer{several}, 301 + 1002, 301 + 1002},
		{"a roomy one beside it", []migration.Peer{several, {RoomBytes: 2000, LargestBytes: 2000}}, 0, 0},
		{"one who does not tell", []migration.Peer{{RoomBytes: 4000}}, 0, 0},
		{"no vault has room", []migration.Peer{{RoomBytes: 4000, LargestBytes: 4000, VaultBytes: new(int64), Places: []string{"spark"}}}, 0, 601},
		{"nobody", nil, 0, 300 + 301 + 1100 + 1002},
	} {
		l, most := load{of: map[string]stock{}}, mostOf(c.peers)
		for _, b := range blocks {
			l.add(b, most(b.ID.Store()))
		}
		if l.large.Bytes != c.large || l.wants(c.peers) != c.wants {
			t.Errorf("%s: got %d bytes too large, %d without room, want %d and %d", c.what, l.large.Bytes, l.wants(c.peers), c.large, c.wants)
		}
		if c.large > 0 && !strings.HasPrefix(l.largeIDs[0], "cache/-/large: 301 B, and no peer has room for more than 300 B") {
			t.Errorf("%s: got %q", c.what, l.largeIDs)
		}
	}
}

// Tiny blocks take more room at a peer than they have bytes. The bytes that are lost are their share of that room.
func TestTinyBlocksTakeMoreThanTheirBytes(t *testing.T) {
	l, some := load{of: map[string]stock{}}, inventory.Block{ID: "cache/-/d012/block-012-00123.bin", Members: []inventory.Member{{Bytes: 500}}}
	takes := some.Takes()
	if takes < 800 {
		t.Errorf("got %d bytes for a block of 500", takes)
	}
	for range 1000 {
		l.Blocks++
		l.Bytes += 500
		l.add(&some, 0)
	}
	for room, want := range map[int64]int64{1000 * takes: 0, 750 * takes: 125_000, 500_000: 500_000 - int64(500_000/float64(takes)*500), 0: 500_000} {
		if got := l.wants([]migration.Peer{{RoomBytes: room}}); got != want {
			t.Errorf("room for %d bytes: got %d without room, want %d", room, got, want)
		}
	}
}

// A directory has the room that its file system says: a block takes its files and one for its record, each in whole units.
func TestWhatSpillsOverTheFallback(t *testing.T) {
	for _, c := range []struct {
		what  string
		room  fallback.Room
		wants int64
		want  int64
	}{
		{"roomy", fallback.Room{Bytes: 1 << 30, UnitBytes: 4096}, 10_000, 0},
		{"half of its units", fallback.Room{Bytes: 10 * 8192, UnitBytes: 4096}, 10_000, 5000},
		{"peers take the other half", fallback.Room{Bytes: 10 * 8192, UnitBytes: 4096}, 5000, 0},
		{"files for a quarter", fallback.Room{Bytes: 1 << 30, Files: 10, UnitBytes: 4096}, 10_000, 7500},
		{"full", fallback.Room{UnitBytes: 4096}, 10_000, 10_000},
		{"nothing wants it", fallback.Room{UnitBytes: 4096}, 0, 0},
	} {
		l := load{of: map[string]stock{}, room: &c.room}
		for range 20 {
			l.Bytes += 500
			l.add(&inventory.Block{ID: "cache/-/x", Members: []inventory.Member{{Bytes: 500}}}, 0)
		}
		if got := l.spills(c.wants); got != c.want {
			t.Errorf("%s: got %d lost, want %d", c.what, got, c.want)
		}
	}
	l := load{of: map[string]stock{}, room: &fallback.Room{Bytes: 1 << 20, UnitBytes: 4096}}
	l.Bytes = 2 << 20
	l.add(&inventory.Block{ID: "cache/-/large", Members: []inventory.Member{{Bytes: 2 << 20}}}, 1000)
	if got := l.spills(l.wants(nil)); got < 1<<20 {
		t.Errorf("one block too large for the peers: got %d lost, want at least what the fallback has no room for", got)
	}
}
