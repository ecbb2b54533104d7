// Package disks tells what stands behind directories: which file system on which device, whether it is well, how much
// room it has and how fast it writes and reads.
//
// A disk that hangs is a fact to report, and no reason to hang. Only probes touch a disk, at most one at a time for
// each, in a process of their own if the Config says so. A probe that does not come back is a fault. A probe that is
// stuck in the kernel is counted and never waited for.
//
// The package writes to disks only what its probes read back at once. What to do about a disk its users decide.
package disks

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

const sysfsRoot = sysfs("/sys")

// Config says what to watch, and how closely. Zero values mean the defaults.
type Config struct {
	Paths        []string      // directories, each with its own findings; several may share a disk
	Every        time.Duration // from one probe of a path to the next; 10 s
	Limit        time.Duration // a probe that takes longer counts as hung; at most Every, which is the default
	SlowAt       time.Duration // if probes take this long to write and sync, the disk is slow; 1 s
	ReserveBytes int64         // bytes that stay free
	// SampleBytes is how much is written to find the speed of a disk that nobody has used for a while; 4 MiB. Negative:
	// nothing.
	SampleBytes int64
	// Command starts a process that calls ServeProbes on its standard input and output. Empty: probes run in this process.
	Command []string
	Log     *slog.Logger
}

// probeBytes is the size of a probe: one page.
const probeBytes = page

// slotBytes is the size of a block, when slots are counted.
const slotBytes = 64 << 20

// looks is how many times the room is measured from one probe to the next.
const looks = 5

func (c Config) withDefaults() Config {
	c.Every = cmp.Or(c.Every, 10*time.Second)
	c.Limit = min(cmp.Or(c.Limit, c.Every), c.Every)
	c.SlowAt = cmp.Or(c.SlowAt, time.Second)
	c.SampleBytes = cmp.Or(c.SampleBytes, 4<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Monitor watches the disks behind a set of paths. It is safe for concurrent use. Only its Run may wait for a disk.
type Monitor struct {
	cfg       Config
	sys       sysfs
	openTable func() (table, error)
	newProber func() prober
	counters  func(number) (counters, bool)
	answers   chan *question
	wake      chan struct{}

	mounts mounts    // what follows belongs to Run alone
	unread bool      // the mounts could not be read
	turned time.Time // when the last turn began

	mu      sync.Mutex // guards what follows; only Run adds and removes devices, so it may read the map without mu
	reserve int64
	places  []*place
	devices map[string]*device

	changed await.News // the health of a disk
}

// table is what is mounted.
type table interface {
	changed() bool
	read() (mounts, error)
	close() error
}

// New returns a monitor that knows nothing until Run.
func New(cfg Config) *Monitor {
	m := &Monitor{
		cfg:       cfg.withDefaults(),
		sys:       sysfsRoot,
		openTable: func() (table, error) { return openMounts() },
		counters:  sysfsRoot.counters,
		answers:   make(chan *question),
		wake:      make(chan struct{}, 1),
		devices:   make(map[string]*device),
	}
	m.newProber = func() prober {
		if len(m.cfg.Command) > 0 {
			return &child{command: m.cfg.Command}
		}
		return here{m.sys}
	}
	m.setPaths(cfg.Paths)
	m.SetReserve(cfg.ReserveBytes)
	return m
}

// setPaths sets the paths to watch. It keeps what is known of those that stay.
func (m *Monitor) setPaths(paths []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var places []*place
	for _, path := range paths {
		path = filepath.Clean(path)
		if slices.ContainsFunc(places, func(p *place) bool { return p.path == path }) {
			continue
		}
		places = append(places, cmp.Or(m.placeOf(path), &place{path: path}))
	}
	m.places = places
	m.rouse()
}

// SetReserve sets how many bytes stay free.
func (m *Monitor) SetReserve(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserve = bytes
}

// placeOf returns the place of exactly this path.
func (m *Monitor) placeOf(path string) *place {
	path = filepath.Clean(path)
	for _, p := range m.places {
		if p.path == path {
			return p
		}
	}
	return nil
}

// rouse makes Run take its next turn at once.
func (m *Monitor) rouse() {
	await.Mark(m.wake)
}

// Changed returns a channel that is closed when the health of any disk changes after this call. Call it before the Snapshot
// that it is to follow.
func (m *Monitor) Changed() <-chan struct{} {
	return m.changed.Next()
}

// farewell is how long Run waits at its end for probes that are under way. A probe that hangs is left behind.
const farewell = time.Second

// Run watches until ctx ends. It runs once, and returns an error only if this machine does not tell what is mounted.
func (m *Monitor) Run(ctx context.Context) error {
	t, err := m.openTable()
	if err != nil {
		return err
	}
	defer t.close() // it was only read
	// Probes run in goroutines that may be stuck for as long as a disk is. They end by themselves.
	quit := make(chan struct{})
	defer m.end(quit)
	tick := time.NewTicker(m.tick())
	defer tick.Stop()
	m.follow(t, true)
	for {
		m.turn(quit)
		select {
		case c := <-m.answers:
			m.take(c)
		case <-m.wake:
		case <-tick.C:
			m.follow(t, false)
		case <-ctx.Done():
			return nil
		}
	}
}

// tick is how often Run looks for what is due or late.
func (m *Monitor) tick() time.Duration { return max(m.cfg.Every/10, time.Millisecond) }

// end ends the idle probers, and gives the others a moment to become idle. A killed process may be stuck in the kernel even
// when it had nothing to do, so the wait for idle probers has the same limit.
func (m *Monitor) end(quit chan<- struct{}) {
	defer close(quit)
	timeout := time.After(farewell)
	var closing sync.WaitGroup
	for _, d := range m.devices {
		if d.asked == nil {
			closing.Go(d.prober.end)
		} else if d.asked.late {
			d.prober.kill()
		}
	}
	all := slices.Collect(maps.Values(m.devices))
	for slices.ContainsFunc(all, func(d *device) bool { return d.asked != nil && !d.asked.late }) {
		select {
		case c := <-m.answers:
			m.mu.Lock()
			c.device.asked = nil
			m.mu.Unlock()
			closing.Go(c.device.prober.end)
		case <-timeout:
			return
		}
	}
	select {
	case <-await.Beside(closing.Wait):
	case <-timeout:
	}
}

// follow reads the mounts if they have changed, and moves each place to the device that it lies on now.
func (m *Monitor) follow(t table, first bool) {
	if !t.changed() && !first && !m.unread {
		return
	}
	all, err := t.read()
	if err != nil {
		if !m.unread {
			m.cfg.Log.Warn("the mounts cannot be read: going by what they were", "err", err)
		}
		m.unread = true
		return
	}
	m.unread, m.mounts = false, all
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.places {
		m.locate(p)
	}
}

// locate finds a place among the mounts without touching its disk.
func (m *Monitor) locate(p *place) {
	on, ok := m.mounts.at(cmp.Or(p.real, p.path))
	switch {
	case !ok:
	case p.real == "":
		p.on = on
	case on.point != p.on.point && below(p.on.point, on.point):
		if p.gone == "" {
			p.gone = "nothing is mounted at " + p.on.point + " any more: what is written here would land on " + on.point
			p.device = ""
			m.judge(p, time.Now(), finding{Missing, p.gone}, true)
		}
		return
	case on.point != p.on.point || on.dev != p.on.dev || p.gone != "":
		p.on, p.real, p.gone = on, "", ""
		p.room, p.sized = extent{}, false // those of the disk that was there
		p.dueProbe = time.Time{}
	}
	m.settle(p)
}

// settle moves a place to its device. Until the place has once been seen where its path leads, it has a device of its
// own, so that a link to a disk that hangs harms no other place.
func (m *Monitor) settle(p *place) {
	n := blockOf(p.on)
	key := n.String()
	if p.real == "" || n == (number{}) {
		key = newcomer(p)
	}
	p.hardware, _ = m.sys.hardware(n)
	p.hardware.number = n
	defer func() { p.device = key }()
	if m.devices[key] != nil {
		return
	}
	if d := m.devices[p.device]; d != nil && d.asked == nil && strings.HasPrefix(d.key, unknownDisk) { // its disk was unknown until now
		delete(m.devices, d.key)
		d.key, d.number = key, n
		m.devices[key] = d
		return
	}
	m.devices[key] = &device{key: key, number: n, prober: m.newProber(), speed: newSpeed()}
}

// newcomer returns the key of a place's own device. It differs for each disk that the place may be on, so that a question which hangs on
// one does not keep the other from being asked.
func newcomer(p *place) string { return unknownDisk + p.path + " " + p.on.dev.String() }

const unknownDisk = "new "
