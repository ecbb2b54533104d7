package migration

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// thaw is how long a drain waits for disks that do not answer once nothing else is left, if it has so long: within that Linux gives up
// a command that a disk does not come back from (/sys/block/*/device/timeout, nvme_core.io_timeout: 30 s), and tries it anew or says why not.
const thaw = 30 * time.Second

// frozen is what a drain waits for when nothing else is left.
type frozen struct {
	dirs  []string // that do not answer, and in which blocks lie, or may
	since time.Time
}

// awaitsDisks tells, when nothing else is left, whether to wait for disks that do not answer. The time for it begins anew when one of them
// does, or there was something else to do. Whoever has another drain follow leaves the wait to that one.
func (d *Drain) awaitsDisks(idle bool) bool {
	var now frozen
	if idle && !d.cfg.Once {
		now = frozen{d.frozenDirs(), time.Now()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	answers := func(dir string) bool { return !slices.Contains(now.dirs, dir) }
	switch before := d.frozen; {
	case len(now.dirs) > 0 && len(before.dirs) == 0:
		d.cfg.Log.Warn("all else is done: waiting for disks that do not answer", "dirs", now.dirs, "most", thaw)
	case !slices.ContainsFunc(before.dirs, answers):
		now.since = before.since
	}
	d.frozen = now
	return len(now.dirs) > 0 && time.Since(now.since) < thaw
}

// frozenDirs are the directories that do not answer, and in which blocks lie, or may.
func (d *Drain) frozenDirs() []string {
	dirs := d.plan.Frozen()
	for dir := range d.looks.unreadable() {
		if d.concernsAny([]string{dir}) && !d.disks.Readable(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// rest waits for so long, or, a moment at least, until a disk may answer again, and returns for how long to wait the next time.
func (d *Drain) rest(ctx context.Context, pause time.Duration) (next time.Duration) {
	changed := d.disks.Changed()
	diskio.Sleep(ctx, leastPause)
	wait := time.NewTimer(pause - leastPause)
	defer wait.Stop()
	select {
	case <-changed:
		return leastPause
	case <-wait.C:
	case <-ctx.Done():
	}
	return min(2*pause, mostPause)
}
