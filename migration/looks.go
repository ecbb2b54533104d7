package migration

import (
	"cmp"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// looks is what a drain knows of its scans: when each directory was read to its end, and which could not be.
type looks struct {
	places *inventory.Places // that scans went through
	kin    inventory.Kin
	log    *slog.Logger

	mu       sync.Mutex
	since    map[string]time.Time // by directory: when the last scan that read all of it began
	asOf     map[string]time.Time // by directory: when the index that its blocks are from was begun
	ahead    time.Duration        // how far the machine's clock was ahead of where it was when the drain began, at most
	back     time.Duration        // how far it was set back since, from where it was farthest ahead
	unread   map[string]string    // directories that no scan could read, and why
	unlisted map[string]unlisted  // directories below those of the stores, not all of whose names the last look could read
}

// unlisted is why not all names in a directory could be told, and when.
type unlisted struct {
	why string
	at  time.Time
}

// mostUnlisted bounds the unlisted directories that are named: for those beyond it, the store's directory is.
const mostUnlisted = 1024

func newLooks(log *slog.Logger) *looks {
	return &looks{
		places: inventory.NewPlaces(), log: log,
		since: map[string]time.Time{}, asOf: map[string]time.Time{}, unread: map[string]string{}, unlisted: map[string]unlisted{},
	}
}

// before returns what a look at a part of a store that begins now knows from those before it. Since is the instant after which a file
// of the directories must have changed to be news (looks.news); the zero time: every file is.
func (l *looks) before(dirs []string, began time.Time) inventory.Past {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := inventory.Past{Places: l.places, Kin: &l.kin, Last: l.since[dirs[0]], Began: began}
	for i, dir := range dirs {
		at, ok := l.since[dir]
		if !ok {
			p.Since = time.Time{}
			break
		}
		if at = at.Add(-inventory.ClockGrain - l.back); i == 0 || at.Before(p.Since) {
			p.Since = at
		}
	}
	return p
}

// news reports whether a block of these directories may be one that no look has met as it is: not all of the directories were read
// since it changed. recent says that it changed since the drain, or the index that it is from, was begun. A block in a directory
// that was not looked through before in its present place (anew) counts as changed.
func (l *looks) news(dirs []string, changed, began time.Time, anew bool) (news, recent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	met := !anew && len(dirs) > 0
	for _, dir := range dirs {
		since, ok := l.since[dir]
		met = met && ok && changed.Before(since.Add(-inventory.ClockGrain-l.back))
		if asOf, ok := l.asOf[dir]; ok && asOf.Before(began) {
			began = asOf
		}
	}
	return !met, !met && (anew || changed.After(began.Add(-inventory.ClockGrain-l.back)))
}

// indexed notes that an index takes the place of the first look at these directories: the next one is for what changed since it was begun.
func (l *looks) indexed(dirs []string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range dirs {
		l.asOf[dir] = began
	}
}

// heedClock makes looks meet the files that changed since the machine's clock was set back, whose times are of before that. off is how
// far the clock was set back since the drain began; below zero where it was set ahead, as until somebody sets it right. It reports
// whether the clock was set back, now or at an earlier look.
func (l *looks) heedClock(off time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead = max(l.ahead, -off)
	if back := off + l.ahead; back > l.back+inventory.ClockGrain/2 {
		l.log.Warn("the clock was set back: what changed in that time is looked at again", "took", back)
		l.back = back
	}
	return l.back > 0
}

// setBack returns how much less the machine's clock has gone since then than time has; below zero if it has gone more.
func setBack(then time.Time) time.Duration {
	now := time.Now()
	return now.Sub(then) - now.Round(0).Sub(then.Round(0)) // Round(0) takes the monotonic reading off
}

// read notes that all of these directories was read since then.
func (l *looks) read(dirs []string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range dirs {
		if _, known := l.since[dir]; !known {
			delete(l.unread, dir)
		}
		l.since[dir] = began
		maps.DeleteFunc(l.unlisted, func(listed string, u unlisted) bool { return diskio.Below(listed, dir) && u.at.Before(began) })
	}
}

// passBy makes the next looks at a directory be for what changed since began, though not all of it was read.
func (l *looks) passBy(dir string, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[dir] = began
}

// older reports whether a change time is certainly of before an instant.
func (l *looks) older(changed int64, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Unix(0, changed).Before(at.Add(-inventory.ClockGrain - l.back))
}

// missed notes that a directory cannot be read, if it never was.
func (l *looks) missed(dir, why string) (never bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.since[dir]; known {
		return false
	}
	if l.unread[dir] != "" {
		return true
	}
	l.unread[dir] = why
	l.log.Error("a directory cannot be read: its blocks stay behind unless it can in time", "dir", dir, "err", why)
	return true
}

// never reports whether no look has come to a directory's end because it could not be read.
func (l *looks) never(dir string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.since[dir]
	return !known && l.unread[dir] != ""
}

// unlist notes a directory that may have blocks that nobody can name, until a look can read it.
func (l *looks) unlist(e *inventory.UnlistedError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir := e.Path()
	_, known := l.unlisted[dir]
	if !known && len(l.unlisted) >= mostUnlisted {
		dir = e.Root
		_, known = l.unlisted[dir]
	}
	l.unlisted[dir] = unlisted{e.Err.Error(), time.Now()}
	if !known {
		l.log.Error("a directory cannot be read: its blocks stay behind unless it can in time", "dir", dir, "err", e.Err)
	}
}

// end notes why, for each of the directories that no look came to the end of.
func (l *looks) end(dirs []string, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range dirs {
		if _, known := l.since[dir]; !known && l.unread[dir] == "" {
			l.unread[dir] = "not all of it was read: " + why
		}
	}
}

// unreadable yields the directories in which nobody knows the names of what is lost, and why.
func (l *looks) unreadable() iter.Seq2[string, string] {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.unread)
	for dir, u := range l.unlisted {
		all[dir] = cmp.Or(all[dir], u.why)
	}
	return func(yield func(string, string) bool) {
		for _, dir := range slices.Sorted(maps.Keys(all)) {
			if !yield(dir, all[dir]) {
				return
			}
		}
	}
}
