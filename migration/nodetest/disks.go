package nodetest

import (
	"cmp"
	"sync"
	"testing"
	"time"
)

// Disks are as the test says. A block goes to the roomiest.
type Disks struct {
	mu       sync.Mutex
	Room     map[string]int64
	Reserved map[string]int64
	Most     map[string]int64 // that was ever reserved
	Bad      map[string]bool  // neither written nor read
	Full     map[string]bool  // not written
	Wrote    map[string]int64
	Read     map[string]int64
	Faults   map[string]error
	Shared   map[string]string // those that share one
	News     chan struct{}
}

// NewDisks are well, with so much room each.
func NewDisks(room int64, paths ...string) *Disks {
	f := &Disks{Room: map[string]int64{}, Reserved: map[string]int64{}, Most: map[string]int64{}, Bad: map[string]bool{},
		Full: map[string]bool{}, Wrote: map[string]int64{}, Read: map[string]int64{}, Faults: map[string]error{}, News: make(chan struct{})}
	for i, p := range paths {
		f.Room[p] = room - int64(i) // the first is the best
	}
	return f
}

func (f *Disks) Take(need int64, among []string) (string, func(int64), bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	best := ""
	for _, p := range among {
		left := f.Room[p] - f.Reserved[p]
		if !f.Bad[p] && !f.Full[p] && left >= need && (best == "" || left > f.Room[best]-f.Reserved[best]) {
			best = p
		}
	}
	if best == "" {
		return "", func(int64) {}, false
	}
	f.Reserved[best] += need
	f.Most[best] = max(f.Most[best], f.Reserved[best])
	return best, func(int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Reserved[best] -= need
	}, true
}

func (f *Disks) Writable(p string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.Bad[p] && !f.Full[p]
}

func (f *Disks) Keeps(p string) bool { return f.Readable(p) }

func (f *Disks) Readable(p string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.Bad[p]
}

func (f *Disks) Disk(p string) string { return cmp.Or(f.Shared[p], p) }

func (f *Disks) FileSystem(p string) string { return f.Disk(p) }

func (f *Disks) note(where map[string]int64, p string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where[p] += bytes
}

func (f *Disks) Flushed(p string, bytes int64, _ time.Duration) { f.note(f.Wrote, p, bytes) }
func (f *Disks) Fetched(p string, bytes int64, _ time.Duration) { f.note(f.Read, p, bytes) }

func (f *Disks) Fault(p string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Faults[p] = err
}

func (f *Disks) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.News
}

// Set has one be bad or full.
func (f *Disks) Set(which map[string]bool, p string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	which[p] = is
	close(f.News)
	f.News = make(chan struct{})
}

// Give has one have so much room.
func (f *Disks) Give(p string, room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Room[p] = room
}

// Use has one have less room.
func (f *Disks) Use(p string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Room[p] -= bytes
}

// Left is the room that one has.
func (f *Disks) Left(p string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, f.Room[p]-f.Reserved[p])
}

// WantNothingReserved fails the test if something is.
func (f *Disks) WantNothingReserved(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, n := range f.Reserved {
		if n != 0 {
			t.Errorf("%d bytes of %s stay reserved", n, p)
		}
	}
}
