package disks

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// place is one path that is watched.
type place struct {
	path string
	real string // where it leads without links; empty until the disk has told
	on   mount
	gone string // what was mounted here is not any more, so nothing is asked; empty: it is

	device   string // its key among the devices; empty while gone
	hardware hardware

	judge judge
	pace  pace
	crowd crowd

	room      extent
	sized     bool
	spentThen int64     // the device's spent when the room was asked for
	answered  time.Time // the last answer

	dueProbe, dueLook time.Time
	asked             time.Time // when its turn last came
}

// device is a disk that several places may share. It is asked one question at a time.
type device struct {
	key    string
	number number
	prober prober
	asked  *question // nil: none under way
	losing bool      // its probes are being lost, and that is logged
	speed  *speed

	answered time.Time // when it last answered, for any of its places

	reserved int64 // bytes for blocks under way
	spent    int64 // bytes of ended reservations that may have been written, since the beginning
}

// question is one task that a disk was given.
type question struct {
	place  *place
	device *device
	whole  bool
	sample bool
	start  time.Time
	spent  int64
	before counters // of the device, at the start
	seen   counters // of the device, when the question was last found late
	step   atomic.Pointer[string]
	answer answer // may be read once the question has come through Monitor.answers

	late   bool
	said   time.Time // when its lateness last counted as an error
	killed bool
}

// turn looks for late questions, and begins those that are due.
func (m *Monitor) turn(quit <-chan struct{}) {
	now := time.Now()
	m.standstill(now)
	counted := make(map[string]counters)
	for key, d := range m.devices {
		if d.asked != nil && now.Sub(d.asked.start) >= m.cfg.Limit || d.speed.due(now) {
			if c, ok := m.counters(d.number); ok {
				counted[key] = c
			}
		}
	}
	var idle []*device
	m.mu.Lock()
	for _, p := range m.places {
		if p.device == "" && p.gone == "" {
			m.locate(p)
		}
	}
	for key, d := range m.devices {
		c, ok := counted[key]
		if d.speed.due(now) {
			d.speed.close(now, c, ok)
		}
		used := slices.ContainsFunc(m.places, func(p *place) bool { return p.device == key })
		switch {
		case d.asked != nil:
			m.watch(now, d, c, ok, used)
		case used:
			m.begin(now, d, quit)
		default:
			delete(m.devices, key)
			idle = append(idle, d)
		}
	}
	m.mu.Unlock()
	for _, d := range idle {
		go d.prober.end() // a killed prober may be stuck in the kernel, and the other disks must not wait for it
	}
}

// standstill takes out of the age of the questions the time in which this process, too, stood still: a machine that is
// paused or moved to another host answers nothing meanwhile, and that is no fault of its disks.
func (m *Monitor) standstill(now time.Time) {
	if stood := now.Sub(m.turned) - 2*m.tick(); !m.turned.IsZero() && stood > 0 {
		for _, d := range m.devices {
			if d.asked != nil {
				d.asked.start = d.asked.start.Add(stood)
			}
		}
	}
	m.turned = now
}

// begin asks the disk what is due, if anything is.
func (m *Monitor) begin(now time.Time, d *device, quit <-chan struct{}) {
	var next *place
	whole := false
	for _, p := range m.places {
		probe := m.due(now, p.dueProbe)
		if p.device != d.key || !probe && !m.due(now, p.dueLook) {
			continue
		}
		if next == nil || probe && !whole || probe == whole && p.asked.Before(next.asked) { // else a slow disk would never get to its last places
			next, whole = p, probe
		}
	}
	if next == nil {
		return
	}
	next.asked = now
	c := &question{place: next, device: d, whole: whole, start: now, spent: d.spent}
	next.dueLook = now.Add(m.cfg.Every / looks)
	t := task{Dir: next.path}
	if whole {
		next.dueProbe = now.Add(m.cfg.Every)
		t.Write, t.Whole = probeBytes, next.hardware.whole
		if n := m.cfg.SampleBytes; n > 0 && next.judge.state.Health == Healthy && next.room.Free > 64*n && d.speed.wantsSample(now) {
			c.sample, t.Write = true, (n+page-1)/page*page
		}
	}
	c.before, _ = m.counters(d.number)
	c.seen = c.before
	d.asked = c
	go func() {
		c.answer = d.prober.probe(t, func(step string) { c.step.Store(&step) })
		select {
		case m.answers <- c:
		case <-quit:
		}
	}()
}

// due reports whether a time has come, or will within half a tick.
func (m *Monitor) due(now, at time.Time) bool { return !now.Add(m.tick() / 2).Before(at) }

// A disk that does other work meanwhile may just be busy: a sync waits for everything that was written before it. So it
// has busyLimits times the limit before it counts as hung. killLimits later the probe is given up, so that another may
// find the way free.
const (
	busyLimits = 4
	killLimits = 3 // beyond the one at which it counted as hung
)

// watch judges a question that has not come back.
func (m *Monitor) watch(now time.Time, d *device, counted counters, ok, used bool) {
	c := d.asked
	late := now.Sub(c.start)
	if !used && !c.killed { // no place is on the device any more
		c.killed = true
		d.prober.kill()
	}
	if late < m.cfg.Limit {
		return
	}
	f, works := m.lateness(c, counted, ok)
	if works && late < busyLimits*m.cfg.Limit {
		f.Health = Slow
	}
	limits := time.Duration(1 + killLimits)
	if works {
		limits = busyLimits + killLimits
	}
	if late >= limits*m.cfg.Limit && !c.killed {
		c.killed = true
		d.prober.kill()
	}
	again := !c.late || now.Sub(c.said) >= m.cfg.Every
	if again {
		c.said = now
	}
	c.late = true
	for _, p := range m.places {
		if p.device == d.key && (again || p.judge.state.Health < f.Health) {
			m.judge(p, now, f, false)
		}
	}
}

// lateness describes a question that has not come back, and reports whether the device does work of the same kind meanwhile.
func (m *Monitor) lateness(c *question, now counters, ok bool) (f finding, works bool) {
	step := "start"
	if s := c.step.Load(); s != nil {
		step = *s
	}
	f = finding{IOHang, fmt.Sprintf("a probe at %s does not come back: it hangs at the step %q", c.place.path, step)}
	if !ok {
		return f, false
	}
	reading := step != stepOpen && step != stepWrite && step != stepSync
	done := func(before counters) bool {
		return !reading && now.Writes > before.Writes || reading && now.Reads > before.Reads
	}
	works = done(c.before)
	lately := done(c.seen)
	reads, writes := stalled(c.seen, now)
	c.seen = now
	state := "works on, "
	switch {
	case lately:
	case reads || writes:
		state = "gets nothing done, "
	case now.Reading+now.Writing == 0: // the device did its work before it stood still
		f.Why += "; the device has nothing to do"
		return f, works
	default:
		state = ""
	}
	f.Why += fmt.Sprintf("; the device %shas %d reads and %d writes under way", state, now.Reading, now.Writing)
	return f, works
}

// take judges a disk's answer.
func (m *Monitor) take(c *question) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	c.device.asked = nil
	p, a := c.place, c.answer
	if a.Lost {
		if !c.killed && !c.device.losing {
			m.cfg.Log.Warn("a probe was lost", "disk", p.path, "err", a.Why)
		}
		c.device.losing = !c.killed
		if c.killed {
			p.dueProbe = now
		}
		return
	}
	c.device.losing = false
	if p.device != c.device.key { // the place has moved meanwhile: the answer is about another disk
		return
	}
	p.answered, c.device.answered = now, now
	if c.late {
		p.dueProbe = now
	}
	if a.Dir != "" && a.Dir != p.real {
		p.real = a.Dir
		if on, ok := m.mounts.at(p.real); ok {
			p.on = on
		}
		if !a.Dev.anonymous() { // the kernel's own word, in case the mounts have changed since they were read
			p.on.dev = a.Dev
		}
		m.settle(p)
		if d := m.devices[p.device]; d != c.device { // what was spent on the other device does not count here
			c.spent = d.spent
		}
	}
	f := a.finding
	if a.Sized {
		p.room, p.sized, p.spentThen = a.Room, true, c.spent
		f = worse(p.crowd.see(a.Room, m.reserve), f) // crowd comes first, for its words have the figures
	}
	if c.whole && a.Health <= Slow {
		f = worse(f, p.pace.see(a.Wrote, m.cfg.SlowAt))
	}
	if c.sample && a.Health == Healthy {
		s := m.devices[p.device].speed
		s.sampled(now, Flush, m.cfg.SampleBytes, a.Wrote)
		s.sampled(now, Fetch, m.cfg.SampleBytes, a.Read)
	}
	m.judge(p, now, f, c.whole && !c.late) // a late answer does not count as good
}

func worse(a, b finding) finding {
	if b.Health > a.Health {
		return b
	}
	return a
}

// judge gives a finding to a place's judge. If that changes the place's health, it logs the change and wakes who waits
// on Changed.
func (m *Monitor) judge(p *place, now time.Time, f finding, whole bool) {
	before := p.judge.state.Health
	if !p.judge.see(now, f, whole) {
		return
	}
	log := m.cfg.Log.Warn
	if p.judge.state.Health == Healthy {
		log = m.cfg.Log.Info
	}
	said := []any{"disk", p.path, "health", p.judge.state.Health, "was", before}
	if why := p.judge.state.Why; why != "" {
		said = append(said, "why", why)
	}
	log("disk health changed", said...)
	m.changed.Tell()
}
