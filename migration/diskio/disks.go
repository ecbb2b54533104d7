// Package diskio is for work on disks that may be sick: who works says so, others see when it does not come back, and whoever may be
// asked about a disk is asked before anybody waits for it. What hangs is left behind, never waited for.
//
// It does not find out how a disk is: package disks does, and an agent hands that over as Disks.
package diskio

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
	// Take sets room aside for so many bytes on the best of these directories. It is the caller's until release, which is told how
	// many of them may have been written.
	Take(need int64, among []string) (path string, release func(written int64), ok bool)
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

// Well stands in where nobody watches the disks: room alone decides.
type Well struct {
	room func(path string) (int64, error)

	mu       sync.Mutex
	reserved map[string]int64
}

// NewWell returns them. room says what is free on a directory's file system, in bytes.
func NewWell(room func(string) (int64, error)) *Well {
	return &Well{room: room, reserved: map[string]int64{}}
}

// Left is what is free there and was not taken. It is 0 where it cannot be found out: unknown is not plenty.
func (w *Well) Left(path string) (int64, error) {
	free, err := w.room(path)
	if err != nil {
		return 0, fmt.Errorf("room of %s: %w", path, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, free-w.reserved[path]), nil
}

func (w *Well) Take(need int64, among []string) (string, func(int64), bool) {
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
		return "", func(int64) {}, false
	}
	path := among[best]
	w.reserved[path] += need
	return path, func(int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reserved[path] -= need
	}, true
}

func (*Well) Writable(string) bool                 { return true }
func (*Well) Keeps(string) bool                    { return true }
func (*Well) Readable(string) bool                 { return true }
func (*Well) Disk(string) string                   { return "" }
func (*Well) FileSystem(string) string             { return "" }
func (*Well) Flushed(string, int64, time.Duration) {}
func (*Well) Fetched(string, int64, time.Duration) {}
func (*Well) Fault(string, error)                  {}
func (*Well) Changed() <-chan struct{}             { return nil }

// OrWell returns d, or disks that are all well where it is nil. Nobody may Take of those: a receiver, which does, makes its own.
func OrWell(d Disks) Disks {
	if d == nil {
		return NewWell(nil)
	}
	return d
}

// Watched is told whom to ask whether a directory's disk answers. Until then every disk does.
type Watched struct{ by atomic.Pointer[Disks] }

// Watch says whom to ask. Nil is nobody.
func (w *Watched) Watch(d Disks) {
	if d != nil {
		w.by.Store(&d)
	}
}

// WatchAs asks whom another one asks.
func (w *Watched) WatchAs(other *Watched) { w.by.Store(other.by.Load()) }

// Readable returns a SilentError where a read may never come back.
func (w *Watched) Readable(path string) error {
	if d := w.by.Load(); d != nil && !(*d).Readable(path) {
		return &SilentError{path}
	}
	return nil
}

// SilentError says that a disk does not answer, and so nothing was asked of it.
type SilentError struct{ Dir string }

func (e *SilentError) Error() string { return "disk " + e.Dir + " does not answer" }

// IsSilent reports whether an error says so.
func IsSilent(err error) bool {
	_, is := errors.AsType[*SilentError](err)
	return is
}

// Silence says of a disk, by one of its directories, that it does not answer.
func Silence(dir string) *SilentError { return &SilentError{dir} }

// awayError says that the directory of a segment, or of a store, is not used now: what lies in it is neither there nor gone.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// Away says of what lies in a directory why that is not used now.
func Away(why error) error { return &awayError{why} }

// IsAway reports whether an error says so.
func IsAway(err error) bool {
	_, is := errors.AsType[*awayError](err)
	return is
}

// Overdue is how long a disk may take over one write, sync or read before it is taken to hang, whatever is known of it
// otherwise. A sender that hears nothing for peerTimeout goes away, so a receiver must have seen it before.
const Overdue = 8 * time.Second

// Suspect is how long work on a disk that is known to be unwell may take.
const Suspect = time.Second

// LookAfter is how often somebody looks for work that does not come back.
const LookAfter = time.Second

// Work is what one goroutine does on a disk now, so that others see when it does not come back.
type Work struct {
	since Moment
	dir   atomic.Pointer[string]
}

// Begin says that work on a directory begins.
func (w *Work) Begin(dir *string) { w.BeginAt(dir, time.Now()) }

// BeginAt does so for who has the time.
func (w *Work) BeginAt(dir *string, now time.Time) {
	w.since.Note(now)
	w.dir.Store(dir)
}

// GoesOn says that it is not the whole of what was begun that takes so long, but one part after the other.
func (w *Work) GoesOn() { w.since.Note(time.Now()) }

// End says that there is no work now.
func (w *Work) End() { w.dir.Store(nil) }

// On returns the directory that is worked on, and for how long.
func (w *Work) On(now time.Time) (dir string, took time.Duration, ok bool) {
	at := w.dir.Load()
	if at == nil {
		return "", 0, false
	}
	return *at, w.since.Ago(now), true
}

// IsFault tells errors of a disk from those of a block.
func IsFault(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(diskErrnos, errno)
}

var diskErrnos = []syscall.Errno{
	syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.ENODEV, syscall.ENXIO,
	syscall.ENOTCONN, syscall.ESTALE,
}

// Below reports whether a path is a directory or lies in it.
func Below(path, dir string) bool {
	dir = filepath.Clean(dir)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Cleaned are the paths as filepath.Clean writes them, as Disks knows them.
func Cleaned(paths []string) []string {
	clean := make([]string, len(paths))
	for i, p := range paths {
		clean[i] = filepath.Clean(p)
	}
	return clean
}

// OpenPatience is how long a start waits for a directory. One that takes longer is used once it is
// open.
const OpenPatience = 5 * time.Second
