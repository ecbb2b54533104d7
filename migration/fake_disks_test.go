package migration

import (
	"cmp"
	"sync"
	"testing"
	"time"
)

// fakeDisks are as the test says. A block goes to the roomiest.
type fakeDisks struct {
	mu       sync.Mutex
	room     map[string]int64
	reserved map[string]int64
	most     map[string]int64 // that was ever reserved
	bad      map[string]bool  // neither written nor read
	full     map[string]bool  // not written
	flushed  map[string]int64
	fetched  map[string]int64
	faults   map[string]error
	disk     map[string]string // those that share one
	changed  chan struct{}
}

func newFakeDisks(room int64, paths ...string) *fakeDisks {
	f := &fakeDisks{room: map[string]int64{}, reserved: map[string]int64{}, most: map[string]int64{}, bad: map[string]bool{},
		full: map[string]bool{}, flushed: map[string]int64{}, fetched: map[string]int64{}, faults: map[string]error{}, changed: make(chan struct{})}
	for i, p := range paths {
		f.room[p] = room - int64(i) // the first is the best
	}
	return f
}

func (f *fakeDisks) Take(need int64, among []string) (string, func(), bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	best := ""
	for _, p := range among {
		left := f.room[p] - f.reserved[p]
		if !f.bad[p] && !f.full[p] && left >= need && (best == "" || left > f.room[best]-f.reserved[best]) {
			best = p
		}
	}
	if best == "" {
		return "", func() {}, false
	}
	f.reserved[best] += need
	f.most[best] = max(f.most[best], f.reserved[best])
	return best, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reserved[best] -= need
	}), true
}

func (f *fakeDisks) Writable(p string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.bad[p] && !f.full[p]
}

func (f *fakeDisks) Keeps(p string) bool { return f.Readable(p) }

func (f *fakeDisks) Readable(p string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.bad[p]
}

func (f *fakeDisks) Disk(p string) string { return cmp.Or(f.disk[p], p) }

func (f *fakeDisks) FileSystem(p string) string { return f.Disk(p) }

func (f *fakeDisks) note(where map[string]int64, p string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where[p] += bytes
}

func (f *fakeDisks) Flushed(p string, bytes int64, _ time.Duration) { f.note(f.flushed, p, bytes) }
func (f *fakeDisks) Fetched(p string, bytes int64, _ time.Duration) { f.note(f.fetched, p, bytes) }

func (f *fakeDisks) Fault(p string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[p] = err
}

func (f *fakeDisks) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeDisks) set(which map[string]bool, p string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	which[p] = is
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeDisks) give(p string, room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room[p] = room
}

func (f *fakeDisks) wantNothingReserved(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, n := range f.reserved {
		if n != 0 {
			t.Errorf("%d bytes of %s stay reserved", n, p)
		}
	}
}
