package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// landing is the disks as the agent and migration see them: which of them take blocks and give them back. Migration asks
// about files and directories; the monitor watches directories above them.
type landing struct {
	monitor Monitor
	closed  func(path string) bool // says that an operator wants nothing more put in a directory
	stores  []*inventory.Store     // whose disks may be missing in a way that only they know
	log     *slog.Logger

	mu      sync.Mutex // guards what follows: migration asks for every block, and disks change seldom
	last    []disks.Disk
	at      time.Time
	changed <-chan struct{}
}

var _ diskio.Disks = (*landing)(nil)

// lately is how long the health of the disks is reused if no change is announced. A hung monitor reports late anyway.
const lately = time.Second

func (l *landing) healths() []disks.Disk {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.changed:
		l.at = time.Time{}
	default:
	}
	if now := time.Now(); l.at.IsZero() || now.Sub(l.at) >= lately {
		l.changed = l.monitor.Changed()
		l.last, l.at = l.monitor.Snapshot(), now
	}
	return l.last
}

// on returns the disk that a file or directory lies on: the innermost that is watched.
func on(path string, all []disks.Disk) (best disks.Disk, ok bool) {
	for _, d := range all {
		if under(path, d.Path) && (!ok || len(d.Path) > len(best.Path)) {
			best, ok = d, true
		}
	}
	return best, ok
}

// under is inside for clean paths, without its cost: it is called for each block.
func under(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// Take picks the best of the paths for a block of that size and sets the room aside.
func (l *landing) Take(need int64, among []string) (path string, release func(written int64), ok bool) {
	all := l.healths()
	var watched, asked []string
	for _, p := range among {
		if d, ok := on(p, all); ok && !l.closed(d.Path) && !slices.Contains(watched, d.Path) {
			watched, asked = append(watched, d.Path), append(asked, p)
		}
	}
	disk, release, ok := l.monitor.Take(need, watched)
	if !ok {
		return "", release, false
	}
	return asked[slices.Index(watched, disk)], release, true
}

// room is how much may still be promised below a path.
func (l *landing) room(path string) (int64, error) {
	d, ok := on(path, l.monitor.Snapshot())
	if !ok || l.closed(d.Path) {
		return 0, nil
	}
	if d.Health == disks.Unknown {
		return 0, fmt.Errorf("room of %s: its disk has not been looked at", path)
	}
	return d.UsableBytes, nil
}

// Writable says whether new blocks may be put at a path.
func (l *landing) Writable(path string) bool {
	d, ok := on(path, l.healths())
	return ok && d.Health.Writable() && !l.closed(d.Path)
}

// Keeps says whether what is put at a path can still be made durable: unlike Writable, on a full disk too.
func (l *landing) Keeps(path string) bool {
	d, ok := on(path, l.healths())
	return ok && (d.Health.Writable() || d.Health == disks.HighUsage) && !l.closed(d.Path)
}

// Readable says whether what lies at a path may be read without the danger of waiting for ever.
func (l *landing) Readable(path string) bool {
	d, ok := on(path, l.healths())
	return !ok || d.Health != disks.IOHang && d.Health != disks.Missing
}

// Disk names the disk that a path lies on.
func (l *landing) Disk(path string) string {
	d, _ := on(path, l.healths())
	return cmp.Or(d.Whole, d.Device)
}

// FileSystem names the file system that a path lies on, by its device number: each partition has one of its own.
func (l *landing) FileSystem(path string) string {
	d, _ := on(path, l.healths())
	return d.Device
}

// Flushed and Fetched tell of work that was done, Fault of work that the disk refused.
func (l *landing) Flushed(path string, bytes int64, took time.Duration) {
	l.monitor.Observe(path, disks.Flush, bytes, took)
}

func (l *landing) Fetched(path string, bytes int64, took time.Duration) {
	l.monitor.Observe(path, disks.Fetch, bytes, took)
}

func (l *landing) Fault(path string, err error) { l.monitor.Fault(path, err) }

// Changed is closed when the health of a disk changes. An operator's order to empty a disk does not close it: migration sees
// that a moment later.
func (l *landing) Changed() <-chan struct{} { return l.monitor.Changed() }
