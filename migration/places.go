package migration

import (
	"fmt"
	"hash/maphash"
	"path"
	"sync"
	"time"
)

// A directory that is renamed, or moved into a store, brings files whose times are those of before. So a look that is for what
// changed since the one before goes by their times only in directories that were looked through in the same place.

// past is what a look through a part of a store knows of those before it.
type past struct {
	since  time.Time // regular files that did not change since may be left out; the zero time: none may, it is the first look
	places *places   // that were looked through; nil: it does not matter
}

// site is a directory of a store, where it was.
type site struct {
	root, path string
	dev, ino   uint64
}

// places are those that a drain has looked through: 8 bytes each.
type places struct {
	seed maphash.Seed

	mu  sync.Mutex
	of  map[uint64]struct{}
	all bool // that there were at the first look
}

// mostPlaces bounds what is remembered of a first look: some MiB. Of directories beyond it, all in those that changed is looked at.
const mostPlaces = 1 << 18

func newPlaces() *places {
	return &places{seed: maphash.MakeSeed(), of: map[uint64]struct{}{}, all: true}
}

// add remembers a place.
func (p *places) add(at site, first bool) {
	if p == nil {
		return
	}
	sum := maphash.Comparable(p.seed, at)
	p.mu.Lock()
	defer p.mu.Unlock()
	if first && len(p.of) >= mostPlaces {
		p.all = false
		return
	}
	p.of[sum] = struct{}{}
}

// lacks reports whether a directory was not looked through where it is now. perhaps says that it may have been moved there, by its
// own change time or that of one above.
func (p *places) lacks(at site, perhaps bool) bool {
	if p == nil {
		return false
	}
	sum := maphash.Comparable(p.seed, at)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.of[sum]
	return !has && (p.all || perhaps)
}

// unlistedError is why not all names in a directory can be told.
type unlistedError struct {
	root, dir string
	err       error
}

func (e *unlistedError) Error() string { return fmt.Sprintf("scan %s: %v", e.path(), e.err) }
func (e *unlistedError) Unwrap() error { return e.err }

func (e *unlistedError) path() string { return path.Join(e.root, e.dir) }
