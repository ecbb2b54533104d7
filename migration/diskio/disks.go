// Package diskio is for work on disks that may be sick. A goroutine notes the work that it does on a disk, and others see when that does
// not come back. Before anybody waits for a disk, Disks or Watched is asked whether it answers. Work that hangs is left behind, never
// waited for.
//
// It does not find out whether a disk is well: package disks does, and an agent hands that over as Disks.
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

// Disks knows how the disks under the stores and the vault are, and is told of the work on them. Paths are the directories of the
// stores and of the vault, as they were configured but cleaned. No method waits for a disk. Where a configuration has a nil Disks,
// every disk is well and has the room that the configuration's Room says.
type Disks interface {
	// Take sets room aside for so many bytes on the best of these directories. The room is the caller's until it calls release
	// with how many of them it may have written.
	Take(need int64, among []string) (path string, release func(written int64), ok bool)
	// Writable reports whether new blocks may be put there.
	Writable(path string) bool
	// Keeps reports whether what was put there can still be made durable. It can on a disk that is merely full: a block that has
	// its room there is not sent elsewhere.
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
	// Changed returns a channel that is closed when the answer of Writable, Keeps or Readable may have changed for any disk since.
	Changed() <-chan struct{}
}

// Well stands in where nobody watches the disks: room alone decides.
type Well struct {
	room func(path string) (int64, error)

	mu       sync.Mutex
	reserved map[string]int64
}

// NewWell returns a Well. room says what is free on a directory's file system, in bytes.
func NewWell(room func(string) (int64, error)) *Well {
	return &Well{room: room, reserved: map[string]int64{}}
}

// Left returns how many bytes are free there and were not taken. Where that cannot be found out it returns 0: unknown is not plenty.
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

// OrWell returns d, or disks that are all well where d is nil. Those know of no room, so nobody may Take from them: a receiver, which
// does take, makes a Well of its own.
func OrWell(d Disks) Disks {
	if d == nil {
		return NewWell(nil)
	}
	return d
}

// Watched knows from its Disks whether a directory's disk answers. Until it is told of a Disks, every disk does.
type Watched struct{ by atomic.Pointer[Disks] }

// Watch tells w which Disks to ask. Nil changes nothing.
func (w *Watched) Watch(d Disks) {
	if d != nil {
		w.by.Store(&d)
	}
}

// WatchAs makes w ask the same Disks as other.
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

func (e *SilentError) Error() string { return "disk " + e.Dir + noAnswer }

const noAnswer = " does not answer"

// SaysSilent reports whether a reason in an account, which is all that is left of an error, was a SilentError.
func SaysSilent(reason string) bool { return strings.HasSuffix(reason, noAnswer) }

// IsSilent reports whether an error says that a disk does not answer.
func IsSilent(err error) bool {
	_, is := errors.AsType[*SilentError](err)
	return is
}

// Silence returns the error that says of a disk, by one of its directories, that it does not answer.
func Silence(dir string) *SilentError { return &SilentError{dir} }

// awayError says that the directory of a segment, or of a store, is not used now: what lies in it cannot be had, and is not gone.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// Away returns the error that a directory is not used now, and why.
func Away(why error) error { return &awayError{why} }

// IsAway reports whether an error is one of Away.
func IsAway(err error) bool {
	_, is := errors.AsType[*awayError](err)
	return is
}

// Overdue is how long a disk may take over one write, sync or read before it is taken to hang, whatever else is known of it.
// A sender gives up a peer that it hears nothing from for peerTimeout (package migration). A receiver must notice a hung disk earlier.
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

// BeginAt is Begin for a caller that has read the clock.
func (w *Work) BeginAt(dir *string, now time.Time) {
	w.since.Note(now)
	w.dir.Store(dir)
}

// GoesOn says that another part of the work has come back: what takes long is the number of parts, not a disk that hangs.
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

// IsFault reports whether an error is of a disk, not of one block.
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
