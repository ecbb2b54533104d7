package receiver

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// readBack runs one part of the reading back, and leaves it behind if it hangs on a disk, so that the blocks on other disks and the blocks
// that readers found broken do not wait for that disk. Until the part comes back nobody else begins to read there (stuck). readBack reports
// false if it left the part behind, or the part returned a SilentError.
func (r *Receiver) readBack(ctx context.Context, part func(ctx context.Context, w *diskio.Work) error) (ended bool) {
	w := &diskio.Work{}
	r.mu.Lock()
	r.backs[w] = true
	r.mu.Unlock()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var err error
	back := diskio.Beside(func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.backs, w)
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
			if dir, hangs := r.hangsIn(w, now); hangs {
				r.cfg.Log.Warn("what landed cannot be read back: its disk does not answer", "disk", dir)
				return false
			}
		}
	}
}

// hangsIn reports whether work hangs on a disk, and in which directory.
func (r *Receiver) hangsIn(w *diskio.Work, now time.Time) (dir string, hangs bool) {
	dir, took, ok := w.On(now)
	return dir, ok && (took >= diskio.Overdue || took >= diskio.Suspect && !r.disks.Readable(dir))
}
