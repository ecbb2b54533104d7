package migration

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// lostBy drains a node from which no peer takes anything, with its account in dir, and returns the account. Time is the bubble's: all
// blocks are planned when it is up, however slow the machine is.
func lostBy(t *testing.T, a *node, dir string, ballast *durable.Ballast) (sum manifest.Summary, entries []manifest.Entry) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrip(t, a)
		tr.cfg.Dir, tr.cfg.Ballast = filepath.Join(dir, "incidents", "inc-1"), ballast
		d := NewDrain(tr.cfg)
		sum, _ = d.Run(within(t, time.Minute))
		for e, err := range d.Entries() {
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
	})
	return sum, entries
}

func TestWhatIsLostIsNamedOnAFullDisk(t *testing.T) {
	t.Run("which has ballast", func(t *testing.T) {
		a, want := cached(t, 2000, 10)
		dir := smalldisk.New(t, 16<<20)
		ballast := durable.NewBallast(filepath.Join(dir, "ballast"))
		if err := ballast.Keep(1 << 20); err != nil || ballast.Bytes() != 1<<20 {
			t.Fatalf("keep: %v, %d bytes", err, ballast.Bytes())
		}
		smalldisk.Fill(t, dir)
		sum, entries := lostBy(t, a, dir, ballast)
		wantLost(t, want, entries, "no peer")
		if onDisk := entriesOf(t, filepath.Join(dir, "incidents", "inc-1")); sum.Lost.Blocks != 2000 || len(onDisk) != 2000 {
			t.Errorf("got %+v, and %d names on the disk; want 2000", sum, len(onDisk))
		}
	})
	t.Run("which has none", func(t *testing.T) {
		a, want := cached(t, 2000, 10)
		dir := smalldisk.New(t, 1<<20)
		smalldisk.Fill(t, dir)
		_, entries := lostBy(t, a, dir, nil)
		wantLost(t, want, entries, "no peer")
	})
}

func TestNamesThatAreNoIDsAreLostAndNamed(t *testing.T) {
	a, want := cached(t, 3, 10)
	for _, name := range []string{"tab\there", "new\nline", "bad\xff", strings.Repeat(strings.Repeat("\x01", 200)+"/", 15) + "deep"} {
		write(t, filepath.Join(a.Dir, "cache", name), []byte("data"))
	}
	if err := unix.Mkfifo(filepath.Join(a.Dir, "cache", "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.Dir, "cache", "half\t.tmp"), nil)
	b := newNode(t, "b")
	sum, entries := a.drain(t, within(t, time.Minute), b)
	wantThere(t, want, entries, b)
	if sum.Lost != (inventory.Count{Blocks: 4, Bytes: 16}) || sum.Skipped.Blocks != 2 || sum.Moved.Blocks != 3 {
		t.Errorf("got %+v, want 4 lost, 2 skipped, 3 moved", sum)
	}
	lost := outcome(t, entries, manifest.Lost)
	for id, why := range map[string]string{`cache/-/"tab\there"`: "control character U+0009", `cache/-/"new\nline"`: "control character U+000A", `cache/-/"bad\xff"`: "not UTF-8"} {
		if e := lost[id]; !strings.Contains(e.Reason, why) || !strings.Contains(e.Reason, "rename the file") {
			t.Errorf("%s: got %+v, want %q", id, e, why)
		}
	}
	for id := range lost {
		if len(id) > 1100 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("an id of %d bytes: %q", len(id), id)
		}
	}
}
