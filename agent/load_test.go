package agent

import (
	"testing"

	"github.com/lifeboat/lifeboat/migration"
)

// What finds no room is told by where it could go: beside what lands in its place, the vault has its own room.
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
		if got := (load{of: c.of}).wants(c.peers); got != c.want {
			t.Errorf("%s: got %d without room, want %d", c.what, got, c.want)
		}
	}
}
