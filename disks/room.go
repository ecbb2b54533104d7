package disks

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is what stands behind one path at one moment. Several paths may share a device; then they share its room and its
// speed.
type Disk struct {
	Path   string
	Mount  string
	Device string // number, 8:17; paths with the same one share it
	Name   string // of the device: sdb1; empty: there is none, or it has no name
	Whole  string // of the disk that a partition lies on: sdb
	FS     string
	Kind   string // hdd, ssd, or empty: not said

	Health Health
	Why    string // empty when healthy
	Since  time.Time
	Errors int // of the last ten minutes, up to 65

	TotalBytes    int64
	FreeBytes     int64 // as the file system told last, within quotas
	UsableBytes   int64 // what may be reserved now; 0 on a disk that takes no blocks
	ReservedBytes int64 // on the device, for blocks under way
	Inodes        int64 // 0: not counted
	InodesFree    int64
	Slots         int64 // blocks that the whole disk would hold
	FreeSlots     int64 // blocks that may be reserved now

	Flush, Fetch Rate
}

// staleAfter is after how many periods without any answer a disk counts as unknown, though no probe hangs.
const staleAfter = 4

// Snapshot returns what is known of each path, in the order of the paths.
func (m *Monitor) Snapshot() []Disk {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Disk, 0, len(m.places))
	for _, p := range m.places {
		all = append(all, m.view(now, p))
	}
	return all
}

// Stuck returns how many probes have been under way for longer than Limit: each holds a thread, or a process.
func (m *Monitor) Stuck() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, d := range m.devices {
		if d.asked != nil && d.asked.late {
			n++
		}
	}
	return n
}

func (m *Monitor) view(now time.Time, p *place) Disk {
	h := p.hardware
	d := Disk{
		Path: p.path, Mount: p.on.point, Device: h.number.String(), Name: h.name, Whole: h.whole, FS: p.on.fs, Kind: h.kind,
		Health: p.judge.state.Health, Why: p.judge.why(), Since: p.judge.since, Errors: p.judge.recent(now),
		TotalBytes: p.room.Total, FreeBytes: p.room.Free, Inodes: p.room.Inodes, InodesFree: p.room.InodesFree,
		UsableBytes: m.usable(now, p),
	}
	if d.Health.Writable() && m.stale(now, p) {
		d.Health, d.Why, d.Since = Unknown, "no probe has come to an end since "+p.answered.Format(time.TimeOnly), p.answered
	}
	d.Slots, d.FreeSlots = d.TotalBytes/slotBytes, d.UsableBytes/slotBytes
	if dev := m.devices[p.device]; dev != nil {
		d.ReservedBytes = dev.reserved
		d.Flush, d.Fetch = dev.speed.rate(now, Flush), dev.speed.rate(now, Fetch)
	}
	return d
}

// stale reports whether a place's disk has not answered for long. Places on a slow disk wait for each other's probes,
// so an answer for any of them counts.
func (m *Monitor) stale(now time.Time, p *place) bool {
	answered := p.answered
	if d := m.devices[p.device]; d != nil && d.answered.After(answered) {
		answered = d.answered
	}
	return now.Sub(answered) > staleAfter*m.cfg.Every
}

// usable returns how many bytes may be reserved. What was given back since the room was measured counts as written, for
// it may have been.
func (m *Monitor) usable(now time.Time, p *place) int64 {
	d := m.devices[p.device]
	if d == nil || !p.sized || !p.judge.state.Health.Writable() || m.stale(now, p) {
		return 0
	}
	return max(0, p.room.Free-m.reserve-d.reserved-(d.spent-p.spentThen))
}

// find returns the innermost place that a file or directory lies in.
func (m *Monitor) find(path string) *place {
	path = filepath.Clean(path)
	var best *place
	for _, p := range m.places {
		if below(path, p.path) && (best == nil || len(p.path) > len(best.path)) {
			best = p
		}
	}
	return best
}

// Take picks the best of the paths for a block of need bytes, if one has room: a healthy disk before a slow one, then the one
// that would have written the block soonest, then the roomiest. A disk of unknown speed counts as no faster than the slowest
// known one. The block has the room until release, which is called once with how many bytes may have been written.
func (m *Monitor) Take(need int64, among []string) (path string, release func(written int64), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pick(need, among)
	if !ok {
		return "", func(int64) {}, false
	}
	d := m.devices[p.device]
	d.reserved += need
	return p.path, func(written int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		d.reserved -= need
		d.spent += written
	}, true
}

// near is by how much two waits may differ and still count as the same: rates are not more exact than that.
const near = 1.25

type bid struct {
	place  *place
	usable int64
	queue  int64 // bytes that the device has to write, this block included
	rate   int64
}

func (m *Monitor) pick(need int64, among []string) (*place, bool) {
	now := time.Now()
	var bids []bid
	slowest := int64(0)
	for _, path := range among {
		p := m.placeOf(path)
		if p == nil || need < 0 {
			continue
		}
		usable := m.usable(now, p)
		if usable < need || !p.judge.state.Health.Writable() {
			continue
		}
		d := m.devices[p.device]
		b := bid{place: p, usable: usable, queue: d.reserved + need, rate: d.speed.rate(now, Flush).BytesPerSecond}
		if b.rate > 0 && (slowest == 0 || b.rate < slowest) {
			slowest = b.rate
		}
		bids = append(bids, b)
	}
	if len(bids) == 0 {
		return nil, false
	}
	wait := func(b bid) float64 { return float64(b.queue) / float64(max(1, cmp.Or(b.rate, slowest))) }
	best := slices.MinFunc(bids, func(a, b bid) int {
		return cmp.Or(cmp.Compare(a.place.judge.state.Health, b.place.judge.state.Health), cmp.Compare(wait(a), wait(b)))
	})
	bids = slices.DeleteFunc(bids, func(b bid) bool {
		return b.place.judge.state.Health != best.place.judge.state.Health || wait(b) > near*wait(best)
	})
	return slices.MaxFunc(bids, func(a, b bid) int { return cmp.Compare(a.usable, b.usable) }).place, true
}

// Observe tells of work at or below path: so many bytes flushed or fetched, and how long that took.
func (m *Monitor) Observe(path string, op Op, bytes int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.find(path); p != nil && m.devices[p.device] != nil {
		m.devices[p.device].speed.work[op].add(bytes, took)
	}
}

// Fault tells of an error that work at or below path met. An error of the disk counts like a failed probe. After any
// error the disk is probed at once, even after one that may be the caller's own doing (no such file, no permission).
func (m *Monitor) Fault(path string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.find(path)
	if p == nil || err == nil {
		return
	}
	if is(err, unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.ENODEV, unix.ENXIO, unix.ENOTCONN, unix.ESTALE) {
		m.judge(p, time.Now(), faultOf("work at "+p.path, err), false)
	}
	p.dueProbe = time.Time{}
	m.rouse()
}
