package disks

import "time"

// Op is an operation on a disk.
type Op int

const (
	Flush Op = iota // write, until the bytes are durable
	Fetch           // read
)

// Rate is how fast a disk flushes or fetches. The zero value is unknown, and does not count as fast: nobody has seen
// the disk work.
type Rate struct {
	BytesPerSecond int64
	From           string // "work": what callers observed; "device": the device's own counters; "probe": a sample written when idle
}

// Known reports whether there is a figure at all.
func (r Rate) Known() bool { return r.From != "" }

// The rings are as in Celeborn, 20 windows, here of 30 s.
const (
	ringWindows = 20
	windowSpan  = 30 * time.Second
	workAtLeast = 8 // operations in a window; Celeborn's 500 flushes are of 256 KiB, ours of whole blocks
)

// window sums up the operations of one span of time.
type window struct {
	bytes int64
	took  time.Duration
	n     int64
	ended time.Time
}

// ring averages over the last windows that had enough operations. A window with fewer is dropped, for a few operations
// are noise. A window as old as the whole ring no longer counts, so an idle disk becomes unknown instead of keeping its
// last figure.
type ring struct {
	windows []window
	atLeast int64
	next    int
	open    window
}

func newRing(windows int, atLeast int64) ring {
	return ring{windows: make([]window, windows), atLeast: atLeast}
}

func (r *ring) add(bytes int64, took time.Duration) {
	r.open.bytes += bytes
	r.open.took += took
	r.open.n++
}

// close ends the open window.
func (r *ring) close(now time.Time) {
	if r.open.n >= r.atLeast && r.open.n > 0 {
		r.open.ended = now
		r.windows[r.next] = r.open
		r.next = (r.next + 1) % len(r.windows)
	}
	r.open = window{}
}

// sum adds up the windows that still count.
func (r *ring) sum(now time.Time) (s window) {
	for _, w := range r.windows {
		if w.n > 0 && now.Sub(w.ended) < time.Duration(len(r.windows))*windowSpan {
			s.bytes += w.bytes
			s.took += w.took
			s.n += w.n
		}
	}
	return s
}

// perSecond is bytes by the time that they took. If several operations ran at once, it is what one of them got.
func (w window) perSecond() int64 {
	if w.took <= 0 {
		return 0
	}
	return int64(float64(w.bytes) / w.took.Seconds())
}

// speed is how fast one device flushes and fetches.
type speed struct {
	work   [2]ring
	device [2]ring
	sample [2]window
	ended  time.Time // when the last window ended
	last   counters
	heard  bool // last has been read
}

func newSpeed() *speed {
	var s speed
	for op := range s.work {
		s.work[op] = newRing(ringWindows, workAtLeast)
		s.device[op] = newRing(ringWindows, 1)
	}
	return &s
}

// due reports whether the window is over. It is at the start: the first window begins with that end.
func (s *speed) due(now time.Time) bool { return now.Sub(s.ended) >= windowSpan }

// A device's counters say something about its speed if in a window it was busy for that long, and moved that many
// bytes.
const (
	busyAtLeast  = 100 * time.Millisecond
	movedAtLeast = 4 << 20
)

// close ends the window, with the device's own counters. A device counts the time that it is busy with reads and writes
// together, so one that does both looks slower than it is, never faster.
func (s *speed) close(now time.Time, c counters, ok bool) {
	busy := time.Duration(c.BusyMillis-s.last.BusyMillis) * time.Millisecond
	if ok && s.heard && busy >= busyAtLeast {
		moved := [2]int64{Flush: c.WrittenBytes - s.last.WrittenBytes, Fetch: c.ReadBytes - s.last.ReadBytes}
		for op, bytes := range moved {
			if bytes >= movedAtLeast {
				s.device[op].add(bytes, busy)
			}
		}
	}
	s.last, s.heard, s.ended = c, ok, now
	for op := range s.work {
		s.work[op].close(now)
		s.device[op].close(now)
	}
}

func (s *speed) sampled(now time.Time, op Op, bytes int64, took time.Duration) {
	s.sample[op] = window{bytes: bytes, took: took, n: 1, ended: now}
}

// rate prefers what callers' work has shown to what the device has counted, and that to a sample.
func (s *speed) rate(now time.Time, op Op) Rate {
	if w := s.work[op].sum(now); w.perSecond() > 0 {
		return Rate{w.perSecond(), "work"}
	}
	if w := s.device[op].sum(now); w.perSecond() > 0 {
		return Rate{w.perSecond(), "device"}
	}
	if w := s.sample[op]; w.n > 0 && now.Sub(w.ended) < ringWindows*windowSpan && w.perSecond() > 0 {
		return Rate{w.perSecond(), "probe"}
	}
	return Rate{}
}

// wantsSample reports whether a sample is due: real work says nothing, and the last sample is half as old as it may
// get.
func (s *speed) wantsSample(now time.Time) bool {
	for op := range s.sample {
		if r := s.rate(now, Op(op)); r.From != "work" && r.From != "device" &&
			(s.sample[op].n == 0 || now.Sub(s.sample[op].ended) >= ringWindows*windowSpan/2) {
			return true
		}
	}
	return false
}
