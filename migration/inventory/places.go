package inventory

import (
	"fmt"
	"hash/maphash"
	"path"
	"sync"
	"time"
)

// A directory that is renamed, or moved into a store, brings files with their old times. So a look for what has changed since
// the last one goes by those times only in directories that the last look went through in the same place.

// Past is what a look through a part of a store knows of the looks before it.
type Past struct {
	Since  time.Time // regular files that did not change since may be left out; zero: none may, for it is the first look
	Places *Places   // where earlier looks went; nil: it does not matter
	Kin    *Kin      // nil: nothing is learned
	Last   time.Time // when the look before began, as Began is for this one: looks are known by that
	Began  time.Time
}

// site is a directory of a store, and where it was.
type site struct {
	root, path string
	dev, ino   uint64
}

// Places remembers for a drain where it last looked through each directory, and in which look: 16 bytes each.
type Places struct {
	seed maphash.Seed

	mu  sync.Mutex
	of  map[uint64]uint64 // by inode: a hash of path and look
	all bool              // of has all directories of the first look
}

// mostPlaces bounds what is remembered of a first look: some MiB. In a directory beyond it that has changed, all files are looked
// at.
const mostPlaces = 1 << 18

// NewPlaces returns the places of a drain that begins.
func NewPlaces() *Places {
	return &Places{seed: maphash.MakeSeed(), of: map[uint64]uint64{}, all: true}
}

func (p *Places) sums(at site, look time.Time) (inode, path uint64) {
	type visit struct {
		root, path string
		began      int64
	}
	inode = maphash.Comparable(p.seed, site{dev: at.dev, ino: at.ino})
	return inode, maphash.Comparable(p.seed, visit{at.root, at.path, look.UnixNano()})
}

// add notes that a look went through a directory. anew: the look before it did not.
func (p *Places) add(at site, look time.Time, anew bool) {
	if p == nil {
		return
	}
	inode, path := p.sums(at, look)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.of[inode]; !has && !anew {
		if p.all = p.all && len(p.of) < mostPlaces; !p.all {
			return
		}
	}
	p.of[inode] = path
}

// lacks reports whether a look did not go through a directory where it is now. perhaps: its own change time, or that of a directory
// above, says that it may have been moved there.
func (p *Places) lacks(at site, look time.Time, perhaps bool) bool {
	if p == nil {
		return false
	}
	inode, path := p.sums(at, look)
	p.mu.Lock()
	defer p.mu.Unlock()
	was, has := p.of[inode]
	return has && was != path || !has && (p.all || perhaps)
}

// UnlistedError is why not all names in a directory are known.
type UnlistedError struct {
	Root, Dir string
	Err       error
}

func (e *UnlistedError) Error() string { return fmt.Sprintf("scan %s: %v", e.Path(), e.Err) }
func (e *UnlistedError) Unwrap() error { return e.Err }

// Path returns the directory's path.
func (e *UnlistedError) Path() string { return path.Join(e.Root, e.Dir) }

// ClockGrain is more than a file system's time stamps lag behind the clock (a kernel tick, 10 ms at most).
const ClockGrain = 50 * time.Millisecond

// changedBy returns the last instant at which a file with that change time can have changed. File systems that count whole seconds
// (ext3, ext4 with inodes of 128 bytes, some network file systems) put a change at the beginning of its second, so before a look that
// it came after. On those that count nanoseconds one time in a billion looks like that.
func changedBy(ctim int64) int64 {
	if ctim%int64(time.Second) == 0 {
		return ctim + int64(time.Second) - 1
	}
	return ctim
}
