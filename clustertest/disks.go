package clustertest

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/disks"
)

// diskBytes is the size of each disk: more than any test writes.
const diskBytes = 1 << 40

// fakeDisks is the agent.Monitor of a node's disks: each watched directory is a disk of its own, whose health the test
// sets. What the agent reads and writes goes to the real disk all the same.
type fakeDisks struct {
	mu       sync.Mutex // guards what follows
	health   map[string]disks.Health
	paths    []string
	since    time.Time
	reserve  int64
	reserved map[string]int64
	changed  chan struct{}
}

func newFakeDisks() *fakeDisks {
	return &fakeDisks{health: map[string]disks.Health{}, reserved: map[string]int64{}, since: time.Now(), changed: make(chan struct{})}
}

// monitor is the Monitor for a new agent process: health stays, reservations begin anew.
func (f *fakeDisks) monitor(cfg disks.Config) agent.Monitor {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths, f.reserve, f.reserved = cfg.Paths, cfg.ReserveBytes, map[string]int64{}
	return f
}

// SetDisk sets the health of the disks at and below a directory of a node; "": of all of them.
func (c *Cluster) SetDisk(i int, dir string, h disks.Health) {
	n := c.nodes[i]
	n.disks.set(filepath.Join(n.dir, dir), h)
}

func (f *fakeDisks) set(below string, h disks.Health) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.paths {
		if p == below || strings.HasPrefix(p, below+"/") {
			f.health[p] = h
		}
	}
	f.since = time.Now()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeDisks) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (f *fakeDisks) Snapshot() (all []disks.Disk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.paths {
		d := disks.Disk{Path: p, Mount: p, Device: p, FS: "fake", Health: f.of(p), Since: f.since, TotalBytes: diskBytes, FreeBytes: diskBytes}
		if d.Health != disks.Healthy {
			d.Why = "the test says so"
		}
		if d.ReservedBytes = f.reserved[p]; d.Health.Writable() {
			d.UsableBytes = max(0, diskBytes-f.reserve-d.ReservedBytes)
		}
		all = append(all, d)
	}
	return all
}

func (f *fakeDisks) of(path string) disks.Health {
	if h, said := f.health[path]; said {
		return h
	}
	return disks.Healthy
}

func (f *fakeDisks) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeDisks) Take(need int64, among []string) (path string, release func(int64), ok bool) {
	for _, d := range f.Snapshot() {
		for _, p := range among {
			if p == d.Path && d.UsableBytes >= need && d.Health.Writable() {
				f.book(p, need)
				return p, func(int64) { f.book(p, -need) }, true
			}
		}
	}
	return "", func(int64) {}, false
}

func (f *fakeDisks) book(path string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved[path] += bytes
}

// Stuck, Observe, Fault and SetReserve complete an agent.Monitor.
func (f *fakeDisks) Stuck() int                                     { return 0 }
func (f *fakeDisks) Observe(string, disks.Op, int64, time.Duration) {}
func (f *fakeDisks) Fault(string, error)                            {}

func (f *fakeDisks) SetReserve(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserve = bytes
}
