package migration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A drain adopts the lines of an earlier account that count and name a version, except those of blocks that a bucket took: nobody could
// vouch for these.
func TestAdopt(t *testing.T) {
	line := func(id, outcome, peer, version string) string {
		return `{"id":"cache/-/` + id + `","bytes":10,"outcome":"` + outcome + `","peer":"` + peer + `","version":"` + version + `"}` + "\n"
	}
	good := line("a", "moved", "b", "@7") + line("e", "moved", "c", "@8")
	earlier, dir := t.TempDir(), filepath.Join(t.TempDir(), "inc-2")
	text := line("a", "moved", "b", "@7") + line("x", "past ", "b", "@7") + line("y", "moved", "b", "-7") + line("z", "moved", "fallback:spill", "@7") + line("e", "moved", "c", "@8")
	write(t, manifest.Path(earlier, manifest.Moved), []byte(text))
	ended := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(manifest.Path(earlier, manifest.Moved), ended, ended); err != nil {
		t.Fatal(err)
	}
	want := func(what string, dir, earlier string, blocks int64, text string) {
		t.Helper()
		adopted, err := Adopt(dir, earlier)
		got, _ := os.ReadFile(manifest.Path(dir, manifest.Moved))
		if err != nil || adopted.Blocks != blocks || string(got) != text {
			t.Errorf("%s: got %+v, %v, and\n%swant %d and\n%s", what, adopted, err, got, blocks, text)
		}
	}
	want("no earlier one", dir, filepath.Join(earlier, "none"), 0, "")
	write(t, manifest.Path(dir, manifest.Moved)+".part", []byte("half of it, by a process that was killed"))
	want("one", dir, earlier, 2, good)
	if info, err := os.Stat(manifest.Path(dir, manifest.Moved)); err != nil || !info.ModTime().Equal(ended) {
		t.Errorf("it is of %v, %v, want %v", info.ModTime(), err, ended)
	}
	several := filepath.Join(t.TempDir(), "inc-3")
	newer := filepath.Join(t.TempDir(), "evac-1")
	write(t, manifest.Path(newer, manifest.Moved), []byte(line("a", "moved", "d", "@9")))
	if adopted, err := Adopt(several, newer, filepath.Join(newer, "none"), earlier); err != nil || adopted.Blocks != 3 {
		t.Errorf("of two: got %+v, %v", adopted, err)
	}
	if got, _ := os.ReadFile(manifest.Path(several, manifest.Moved)); string(got) != good+line("a", "moved", "d", "@9") {
		t.Errorf("of two: got\n%swant the newer one behind the other", got)
	}
	write(t, manifest.Path(earlier, manifest.Moved), []byte(line("q", "moved", "b", "@9")))
	want("there is an account", dir, earlier, 0, good)
	write(t, manifest.Path(earlier, manifest.Moved), []byte("no line\n"))
	other := filepath.Join(t.TempDir(), "inc-4")
	if _, err := Adopt(other, earlier); err == nil || !strings.Contains(err.Error(), manifest.Path(earlier, manifest.Moved)) {
		t.Errorf("got %v, want that it cannot be read", err)
	}
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
