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

// An adopted account names a block that was deleted before the drain began, one that is another now, and one that is as it was. The manifest
// has the last two.
func TestAdoptedBlockThatIsDeletedIsNotNamed(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "s0")), newNode(t, "b")
	file := func(name string) string { return filepath.Join(a.Dir, "s0", name) }
	for _, name := range []string{"same", "another", "deleted"} {
		write(t, file(name), contentOf(name, 1000))
	}
	tr := newTrip(t, a, b)
	tr.run(within(t, 20*time.Second))
	earlier := tr.cfg.Dir
	write(t, file("another"), contentOf("else", 2000))
	if err := os.Remove(file("deleted")); err != nil {
		t.Fatal(err)
	}
	tr = newTrip(t, a, b)
	tr.cfg.Dir, tr.cfg.Adopted = filepath.Join(a.Dir, "again"), true
	if adopted, err := Adopt(tr.cfg.Dir, earlier); err != nil || adopted.Blocks != 3 {
		t.Fatalf("adopted %+v, %v", adopted, err)
	}
	sum, entries := tr.run(within(t, 20*time.Second))
	moved := outcome(t, entries, manifest.Moved)
	if len(entries) != 2 || moved["cache/-/same"].Bytes != 1000 || moved["cache/-/another"].Bytes != 2000 || sum.Moved.Blocks != 2 || sum.Moved.Bytes != 3000 {
		t.Errorf("got %+v of %v", sum, entries)
	}
	if p := tr.drain.Progress(); p.Found != sum.Moved {
		t.Errorf("found %+v, want %+v", p.Found, sum.Moved)
	}
}
