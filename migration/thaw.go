package migration

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// thaw is how long a drain waits for disks that do not answer once nothing else is left, if it has so long. Within that time Linux gives
// up a command that a disk does not answer (/sys/block/*/device/timeout, nvme_core.io_timeout: 30 s), and tries it anew or says why not.
const thaw = 30 * time.Second

// frozen is what a drain waits for when nothing else is left.
type frozen struct {
	dirs  []string // that did not answer when nothing else was last left, and that have blocks, or may have
	since time.Time
	waits bool // for them
}

// awaitsDisks reports, when nothing else is left (idle), whether to wait for disks that do not answer. The time for that begins anew when one
// of them answers, and goes on while there is something else to do. A disk that did not answer when the look came by, and does now, is still
// to be emptied. A drain that another one follows leaves the wait to that one.
func (v *survey) awaitsDisks(idle bool) bool {
	var dirs []string
	answers := false
	if idle && !v.account.once {
		dirs, answers = v.frozenDirs()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.frozen.waits = false
	if answers {
		return true
	}
	if len(dirs) == 0 {
		return false
	}
	thawed := func(dir string) bool { return !slices.Contains(dirs, dir) }
	if len(v.frozen.dirs) == 0 || slices.ContainsFunc(v.frozen.dirs, thawed) {
		v.frozen.since = time.Now()
		v.log.Warn("all else is done: waiting for disks that do not answer", "dirs", dirs, "most", thaw)
	}
	v.frozen.dirs, v.frozen.waits = dirs, time.Since(v.frozen.since) < thaw
	return v.frozen.waits
}

// frozenDirs returns the directories that do not answer and that have blocks, or may have. answers: one that no look could read does by now.
func (v *survey) frozenDirs() (dirs []string, answers bool) {
	dirs, idle := v.plan.Frozen()
	answers = !idle
	for dir := range v.looks.unreadable() {
		asked := dir
		if slices.Contains(v.source.vault.Paths(), dir) && v.source.disks.Readable(dir) {
			asked = v.source.vault.Dir // the catalog there says what lies in all directories of the vault
		}
		switch {
		case !v.source.concernsAny([]string{dir}):
		case !v.source.disks.Readable(asked):
			dirs = append(dirs, asked)
		case v.looks.never(dir):
			answers = answers || !slices.ContainsFunc(v.source.all, func(s *inventory.Store) bool { return s.Readable(dir) != nil }) // it was there as the agent started
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), answers
}

// rest waits for pause, or until a disk may answer again, but leastPause at least. It returns for how long to wait the next time.
func (v *survey) rest(ctx context.Context, pause time.Duration) (next time.Duration) {
	changed := v.source.disks.Changed()
	await.Sleep(ctx, leastPause)
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
