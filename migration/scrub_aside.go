package migration

import (
	"context"
	"time"
)

// readBack does a part of the reading back, and leaves it behind if it does not come back from a disk: what lies on the others, and what
// readers found broken there, is not to wait for that one. Until it is back nobody else begins there (stuck). It reports false if it left it.
func (r *Receiver) readBack(ctx context.Context, part func(ctx context.Context, w *work)) (ended bool) {
	w := &work{}
	r.mu.Lock()
	r.backs[w] = true
	r.mu.Unlock()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	back := beside(func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.backs, w)
		}()
		part(ctx, w)
	})
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		select {
		case <-back:
			return true
		case now := <-look.C:
			if dir, hangs := r.hangsIn(w, now); hangs {
				r.cfg.Log.Warn("what landed cannot be read back: its disk does not answer", "disk", dir)
				return false
			}
		}
	}
}

// hangsIn reports whether work does not come back from a disk.
func (r *Receiver) hangsIn(w *work, now time.Time) (dir string, hangs bool) {
	dir, took, ok := w.on(now)
	return dir, ok && (took >= overdue || took >= suspect && !r.disks.Readable(dir))
}
