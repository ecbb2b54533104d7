package receiver

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// stuck returns the directories whose disks hang under the reading back.
func (sc *scrubber) stuck(now time.Time) (dirs []string) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for w := range sc.backs {
		if dir, hangs := sc.hangsIn(w, now); hangs {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// readBack runs one part of the reading back, and leaves it behind if it hangs on a disk, so that the blocks on other disks and the blocks
// that readers found broken do not wait for that disk. Until the part comes back nobody else begins to read there (stuck). readBack reports
// false if it left the part behind, or the part returned a SilentError.
func (sc *scrubber) readBack(ctx context.Context, part func(ctx context.Context, w *diskio.Work) error) (ended bool) {
	w := &diskio.Work{}
	sc.mu.Lock()
	sc.backs[w] = true
	sc.mu.Unlock()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var err error
	back := await.Beside(func() {
		defer func() {
			sc.mu.Lock()
			defer sc.mu.Unlock()
			delete(sc.backs, w)
		}()
		err = part(ctx, w)
	})
	look := time.NewTicker(diskio.LookAfter)
	defer look.Stop()
	for {
		select {
		case <-back:
			return !diskio.IsSilent(err)
		case now := <-look.C:
			if dir, hangs := sc.hangsIn(w, now); hangs {
				sc.cfg.Log.Warn("what landed cannot be read back: its disk does not answer", "disk", dir)
				return false
			}
		}
	}
}
