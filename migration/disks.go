package migration

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Disks is what is asked and told about the disks under the stores and the vault. Paths are the directories of the stores
// and of the vault, as they were configured but cleaned. No method waits for a disk. Nil where a configuration asks for
// one: every disk is well and has the room that Room says.
type Disks interface {
	// Take sets room aside for so many bytes on the best of these directories. It is the caller's until release.
	Take(need int64, among []string) (path string, release func(), ok bool)
	// Writable says whether new blocks may be put there.
	Writable(path string) bool
	// Keeps says whether what is put there can still be made durable. A disk that is merely full does: what has its room
	// is not sent elsewhere.
	Keeps(path string) bool
	// Readable is false where a read may never come back.
	Readable(path string) bool
	// Disk names the disk that a path lies on; "": not known.
	Disk(path string) string
	// FileSystem names the file system that a path lies on, whose room all paths on it share; "": not known.
	FileSystem(path string) string
	// Flushed and Fetched tell of work that was done, Fault of work that the disk refused.
	Flushed(path string, bytes int64, took time.Duration)
	Fetched(path string, bytes int64, took time.Duration)
	Fault(path string, err error)
	// Changed is closed when the answer of Writable, Keeps or Readable may have changed for any disk since this call.
	Changed() <-chan struct{}
}

// wellDisks stands in where nobody watches the disks: room alone decides.
type wellDisks struct {
	room func(path string) (int64, error)

	mu       sync.Mutex
	reserved map[string]int64
}

func newWellDisks(room func(string) (int64, error)) *wellDisks {
	return &wellDisks{room: room, reserved: map[string]int64{}}
}

// left is 0 where it cannot be found out: unknown is not plenty.
func (w *wellDisks) left(path string) (int64, error) {
	free, err := w.room(path)
	if err != nil {
		return 0, fmt.Errorf("room of %s: %w", path, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, free-w.reserved[path]), nil
}

func (w *wellDisks) Take(need int64, among []string) (string, func(), bool) {
	free := make([]int64, len(among))
	for i, p := range among {
		var err error
		if free[i], err = w.room(p); err != nil {
			free[i] = -1
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	best, most := -1, int64(-1)
	for i, p := range among {
		if left := free[i] - w.reserved[p]; free[i] >= 0 && left >= need && left > most {
			best, most = i, left
		}
	}
	if best < 0 {
		return "", func() {}, false
	}
	path := among[best]
	w.reserved[path] += need
	return path, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reserved[path] -= need
	}), true
}

func (*wellDisks) Writable(string) bool                 { return true }
func (*wellDisks) Keeps(string) bool                    { return true }
func (*wellDisks) Readable(string) bool                 { return true }
func (*wellDisks) Disk(string) string                   { return "" }
func (*wellDisks) FileSystem(string) string             { return "" }
func (*wellDisks) Flushed(string, int64, time.Duration) {}
func (*wellDisks) Fetched(string, int64, time.Duration) {}
func (*wellDisks) Fault(string, error)                  {}
func (*wellDisks) Changed() <-chan struct{}             { return nil }

// orWell returns d, or disks that are all well where it is nil. Nobody may Take of those: a receiver, which does, makes its own.
func orWell(d Disks) Disks {
	if d == nil {
		return newWellDisks(nil)
	}
	return d
}

// watched is told whom to ask whether a directory's disk answers. Until then every disk does.
type watched struct{ by atomic.Pointer[Disks] }

func (w *watched) watch(d Disks) {
	if d != nil {
		w.by.Store(&d)
	}
}

// readable returns a silentError where a read may never come back.
func (w *watched) readable(path string) error {
	if d := w.by.Load(); d != nil && !(*d).Readable(path) {
		return &silentError{path}
	}
	return nil
}

// silentError says that a disk does not answer, and so nothing was asked of it.
type silentError struct{ dir string }

func (e *silentError) Error() string { return "disk " + e.dir + " does not answer" }

func silent(err error) bool {
	_, is := errors.AsType[*silentError](err)
	return is
}

// overdue is how long a disk may take over one write, sync or read before it is taken to hang, whatever is known of it
// otherwise. A sender that hears nothing for peerTimeout goes away, so a receiver must have seen it before.
const overdue = 8 * time.Second

// suspect is how long work on a disk that is known to be unwell may take.
const suspect = time.Second

// lookAfter is how often somebody looks for work that does not come back.
const lookAfter = time.Second

// work is what one goroutine does on a disk now, so that others see when it does not come back.
type work struct {
	since moment
	dir   atomic.Pointer[string]
}

func (w *work) begin(dir *string) { w.beginAt(dir, time.Now()) }

func (w *work) beginAt(dir *string, now time.Time) {
	w.since.note(now)
	w.dir.Store(dir)
}

// goesOn says that it is not the whole of what was begun that takes so long, but one part after the other.
func (w *work) goesOn() { w.since.note(time.Now()) }

func (w *work) end() { w.dir.Store(nil) }

// on returns the directory that is worked on, and for how long.
func (w *work) on(now time.Time) (dir string, took time.Duration, ok bool) {
	at := w.dir.Load()
	if at == nil {
		return "", 0, false
	}
	return *at, w.since.ago(now), true
}

// diskFault tells errors of a disk from those of a block.
func diskFault(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(diskErrnos, errno)
}

var diskErrnos = []syscall.Errno{
	syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.ENODEV, syscall.ENXIO,
	syscall.ENOTCONN, syscall.ESTALE,
}

// below reports whether a path is a directory or lies in it.
func below(path, dir string) bool {
	dir = filepath.Clean(dir)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func cleaned(paths []string) []string {
	clean := make([]string, len(paths))
	for i, p := range paths {
		clean[i] = filepath.Clean(p)
	}
	return clean
}
