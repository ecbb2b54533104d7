package migration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// Advice to go may stand for weeks. Blocks that were copied ahead and removed by their engine since do not make each pass
// longer.
func TestAccountOfPassesNamesWhatIsHere(t *testing.T) {
	for name, c := range map[string]struct {
		past  int
		tune  func(tr *trip)
		whole bool // the account stays as it is
	}{
		"most of it is past":                     {leastPast + 100, func(*trip) {}, false},
		"not much is past":                       {leastPast - 100, func(*trip) {}, true},
		"the last drain is to have all of it":    {leastPast + 100, func(tr *trip) { tr.cfg.Once = false }, true},
		"what came from others is not looked at": {leastPast + 100, func(tr *trip) { tr.cfg.Own = true }, true},
		"a directory cannot be read":             {leastPast + 100, func(tr *trip) { tr.from.Stores[0].Shape = heavy{closed: "d", until: time.Now().Add(time.Hour)} }, true},
		"there is no room to write it":           {leastPast + 100, func(tr *trip) { _ = os.Mkdir(manifest.Path(tr.cfg.Dir, manifest.Moved)+".part", 0o700) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, b := drained(t)
			next := newTrip(t, a, b)
			path := manifest.Path(next.cfg.Dir, manifest.Moved)
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.past {
				fmt.Fprintf(f, `{"id":"cache/app/old-%d","bytes":1000,"outcome":"moved","peer":"b","version":"@%d"}`+"\n", i, i)
			}
			toTell := `{"id":"cache/-/f-1","bytes":900,"outcome":"past","peer":"away","version":"@7"}`
			told := strings.Replace(toTell, "@", "-", 1)
			removed := strings.Replace(toTell, "f-1", "f-9", 1)
			fmt.Fprintf(f, "%s\n%s\n%s\n", toTell, told, removed)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			was, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(a.Dir, "cache", "f-5"), contentOf("f-5", 1000))
			next.cfg.Once = true
			c.tune(next)
			next.run(t.Context())
			is, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.whole {
				if !strings.HasPrefix(string(is), string(was)) {
					t.Errorf("its %d bytes are %d, want them as they were", len(was), len(is))
				}
				return
			}
			var lines []string
			stayed := 0 // blocks that are here are remembered by a few bits, which some of the others share
			for line, err := range manifest.AllLines(path) {
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line.ID, "cache/app/old-") {
					stayed++
					continue
				}
				lines = append(lines, fmt.Sprint(line.ID, " ", line.Outcome, " ", line.Peer))
			}
			slices.Sort(lines)
			want := []string{"cache/-/f-0 moved b", "cache/-/f-1 moved b", "cache/-/f-1 past away", "cache/-/f-2 moved b", "cache/-/f-3 moved b", "cache/-/f-5 moved b"}
			if !slices.Equal(lines, want) || stayed > 20 {
				t.Errorf("got %v, and %d that are past, want %v, and hardly any", lines, stayed, want)
			}
			other := newNode(t, "c")
			sum, _ := newTrip(t, a, other).run(t.Context())
			if sum.Moved.Blocks != int64(5+stayed) || sum.Lost.Blocks > 0 {
				t.Errorf("got %+v, want 5 blocks moved, and %d by the account", sum, stayed)
			}
			if other.Vault.Count() != (inventory.Count{}) {
				t.Errorf("%+v was sent again", other.Vault.Count())
			}
		})
	}
}
