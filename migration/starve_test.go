package migration

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// seeking is a disk that takes a moment to find each file, and no time to read it.
type seeking struct{ diskio.Disks }

func (d seeking) Readable(dir string) bool {
	time.Sleep(10 * time.Millisecond)
	return d.Disks.Readable(dir)
}

// How fast small files are found on a disk says nothing about how fast a large one is sent. No large block is given up for that while
// nearly all of the time is left.
func TestLargeBlocksAfterSmallOnesOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		for i := range 300 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint("d", i), "x"), contentOf(fmt.Sprint(i), 1000))
		}
		for i := range 4 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint("large", i)), contentOf(fmt.Sprint(i), 20<<20))
		}
		tr := newTrip(t, a, b)
		tr.cfg.Disks = seeking{diskio.NewWell(nil)}
		began := time.Now()
		sum, _ := tr.run(within(t, 2*time.Minute))
		if took := time.Since(began); sum.Moved.Blocks != 304 || took > 10*time.Second {
			t.Errorf("moved %d blocks of 304 in %v", sum.Moved.Blocks, took)
		}
	})
}
