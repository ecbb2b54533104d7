package manifest

import (
	"maps"
	"os"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// An account may be begun while the earlier one cannot be read, or is too large for memory. It is appended to the earlier one later, and
// does not replace it.
func TestAccountIsJoined(t *testing.T) {
	line := func(id, outcome, peer, version string) string {
		return `{"id":"cache/-/` + id + `","bytes":10,"outcome":"` + outcome + `","peer":"` + peer + `","version":"` + version + `"}` + "\n"
	}
	home, from := t.TempDir(), t.TempDir()
	writes(t, Path(home, Moved), []byte(line("a", "moved", "b", "@1")+line("x", "moved", "b", "@2")+line("l", "moved", "b", "@3")+"no line\n"+line("u", "moved", "b", "@4")))
	writes(t, Path(home, Lost), []byte(line("x", "lost", "", "")))
	writes(t, Path(from, Moved), []byte(line("a", "moved", "c", "@5")+line("n", "moved", "c", "@6")))
	writes(t, Path(from, Lost), []byte(line("l", "lost", "", "")))
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(Path(from, Moved), at, at); err != nil {
		t.Fatal(err)
	}
	want := map[string]Outcome{"a": Moved, "x": Moved, "n": Moved, "l": Lost}
	for range 2 { // a copy that ends before its end is recorded is made again
		if err := Join(t.Context(), from, home); err != nil {
			t.Fatal(err)
		}
		got := map[string]Outcome{}
		for e, err := range Entries(home) {
			name := inventory.BlockID(e.ID).Name()
			if err != nil || got[name] != "" || name == "a" && e.Peer != "c" {
				t.Errorf("got %+v, %v", e, err)
			}
			got[name] = e.Outcome
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if is, err := os.Stat(Path(home, Moved)); err != nil || !is.ModTime().Equal(at) {
		t.Errorf("it is of %v (%v), want %s", is.ModTime(), err, at)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 2 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func writes(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
