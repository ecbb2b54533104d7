package migration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
)

// A drain finds copies of its blocks in the fallback. They count as moved by it, so they must last as long as what the drain puts there: an
// old copy is put there again, even one from another node, and even if a kill -9 has left only its record old.
func TestWhatIsOldInTheFallbackIsPutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c, s := newNode(t, "a", with(filesStore, "cache")), newNode(t, "c", with(filesStore, "cache")), newLarder()
		for _, n := range []*node{a, c} {
			write(t, filepath.Join(n.Dir, "cache/x"), contentOf("x", 1000))
		}
		carry := func(n *node, incident string) (puts int) {
			before := len(s.putNames())
			tr := newTrip(t, n)
			tr.cfg.Incident, tr.cfg.Dir, tr.cfg.Fallback = incident, filepath.Join(n.Dir, incident), s.as(lastresort.LayoutBlocks)
			_, entries := tr.run(within(t, time.Minute))
			wantInFallback(t, tr.cfg.Fallback, map[string][]byte{"cache/-/x": contentOf("x", 1000)}, entries)
			return len(s.putNames()) - before
		}
		if puts := carry(a, "withdrawn"); puts != 2 {
			t.Fatalf("%d were put, want the block and its record", puts)
		}
		time.Sleep(time.Hour)
		if puts := carry(a, "soon after"); puts != 0 {
			t.Errorf("%d were put of what had just been put there", puts)
		}
		for i, n := range []*node{a, c} {
			time.Sleep(6 * 24 * time.Hour)
			if puts := carry(n, fmt.Sprint("in earnest ", i)); puts != 2 || len(s.things) != 2 {
				t.Errorf("%s put %d, and there are %d, want the two that are there put again", n.Name, puts, len(s.things))
			}
		}
		for name := range s.since {
			if strings.HasPrefix(name, "lifeboat-records/") {
				s.since[name] = time.Now().Add(-6 * 24 * time.Hour)
			}
		}
		if puts := carry(c, "after a kill"); puts != 2 {
			t.Errorf("%d were put of a block whose record is old", puts)
		}
	})
}
