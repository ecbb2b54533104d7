package coordinator

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// A coordinator's address comes from the settings file or from the log, whichever changed last, through any number of restarts.
func TestWhoSpokeLastSaysWhereACoordinatorIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	for _, start := range []struct {
		what                  string
		file, agreed, changed string // changed: what the log says while it runs
		before, after         string // where c2 is
	}{
		{"an empty log", "old", "", "old", "old", "old"},
		{"all as it was, and raft add", "old", "old", "new", "old", "new"},
		{"the file was not changed", "old", "new", "new", "new", "new"},
		{"still not", "old", "new", "new", "new", "new"},
		{"it moved, nobody could agree, and the file was changed", "newer", "new", "new", "newer", "newer"},
		{"still nobody could", "newer", "new", "new", "newer", "newer"},
		{"raft add at last, and once more", "newer", "new", "newest", "newer", "newest"},
		{"the file follows", "newest", "newest", "newest", "newest", "newest"},
		{"it was removed", "newest", "", "", "newest", "newest"},
	} {
		store, err := raftstore.Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		agreed := raft.Configuration{Servers: []raft.Server{{ID: "c1", Address: "one"}, {ID: "c2", Address: raft.ServerAddress(start.agreed)}}}
		all, err := readAddresses(store, []Peer{{Name: "c1", Address: "one"}, {Name: "c2", Address: start.file}}, agreed)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if at := all["c2"].now(raft.ServerAddress(start.agreed)); at != raft.ServerAddress(start.before) {
			t.Errorf("%s: c2 is at %q, want %q", start.what, at, start.before)
		}
		if at := all["c2"].now(raft.ServerAddress(start.changed)); at != raft.ServerAddress(start.after) {
			t.Errorf("%s, while it runs: c2 is at %q, want %q", start.what, at, start.after)
		}
		if at := all["c1"].now("one"); at != "one" {
			t.Errorf("%s: c1 is at %q", start.what, at)
		}
		if at := all["c3"].now("three"); at != "three" {
			t.Errorf("%s: c3, which is not in the file, is at %q", start.what, at)
		}
	}
}
