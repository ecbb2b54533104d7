package disks

import (
	"testing"
	"time"
)

// Celeborn's vector for its time windows: two windows, at least two samples in each.
func TestTimeWindows(t *testing.T) {
	r := newRing(2, 2)
	observe := func(times ...time.Duration) {
		for _, d := range times {
			r.add(0, d)
		}
		r.close(at(0))
	}
	observe(10)
	if s := r.sum(at(0)); s.n != 0 || r.next != 0 {
		t.Errorf("one sample: got %+v at %d, want nothing", s, r.next)
	}
	observe(10, 10)
	if w := r.windows[0]; w.took != 20 || w.n != 2 || r.next != 1 {
		t.Errorf("two samples: got %+v at %d", w, r.next)
	}
	observe(5, 5, 5)
	if w := r.windows[1]; w.took != 15 || w.n != 3 || r.next != 0 {
		t.Errorf("three samples: got %+v at %d", w, r.next)
	}
	if s := r.sum(at(0)); int64(s.took)/s.n != 7 {
		t.Errorf("average: got %d, want 7", int64(s.took)/s.n)
	}
}

// Celeborn errs here: no samples mean 0 ns, which is the fastest disk of all, and a figure lasts for ever.
func TestUnknownIsNotFast(t *testing.T) {
	s := newSpeed()
	if r := s.rate(at(0), Flush); r.Known() || r.BytesPerSecond != 0 {
		t.Errorf("nothing was seen: got %+v", r)
	}
	for range workAtLeast {
		s.work[Flush].add(10<<20, 100*time.Millisecond)
	}
	s.close(at(30), counters{}, false)
	if r := s.rate(at(30), Flush); r != (Rate{100 << 20, "work"}) {
		t.Errorf("got %+v, want 100 MiB/s", r)
	}
	if r := s.rate(at(30), Fetch); r.Known() {
		t.Errorf("nothing was fetched: got %+v", r)
	}
	if r := s.rate(at(30+600), Flush); r.Known() {
		t.Errorf("ten minutes later: got %+v", r)
	}
}

func TestDeviceSpeaksWhereOurWorkDoesNot(t *testing.T) {
	s := newSpeed()
	s.sampled(at(0), Flush, 4<<20, 10*time.Millisecond)
	s.close(at(0), counters{WrittenBytes: 1 << 40, BusyMillis: 1 << 30}, true) // since the machine started: it says nothing of now
	if r := s.rate(at(0), Flush); r.From != "probe" || r.BytesPerSecond != 400<<20 {
		t.Errorf("a sample: got %+v", r)
	}
	s.close(at(30), counters{WrittenBytes: 1<<40 + 100<<20, BusyMillis: 1<<30 + 2000, ReadBytes: 1 << 20}, true)
	if r := s.rate(at(30), Flush); r != (Rate{50 << 20, "device"}) {
		t.Errorf("got %+v, want 50 MiB/s", r)
	}
	if r := s.rate(at(30), Fetch); r.Known() {
		t.Errorf("a megabyte is no measure: got %+v", r)
	}
	s.close(at(60), counters{}, false)                                       // the device is gone
	s.close(at(90), counters{WrittenBytes: 1 << 30, BusyMillis: 1000}, true) // and another is there
	if r := s.rate(at(90), Flush); r != (Rate{50 << 20, "device"}) {
		t.Errorf("a new device: got %+v", r)
	}
}

func TestSamplesAreTakenOfIdleDisksOnly(t *testing.T) {
	s := newSpeed()
	if !s.wantsSample(at(0)) {
		t.Error("an unknown disk needs no sample")
	}
	s.sampled(at(0), Flush, 1, 1)
	s.sampled(at(0), Fetch, 1, 1)
	if s.wantsSample(at(299)) || !s.wantsSample(at(300)) {
		t.Error("a sample is taken again every five minutes")
	}
	for op := range s.work {
		for range workAtLeast {
			s.work[op].add(1<<20, time.Second)
		}
	}
	s.close(at(300), counters{}, false)
	if s.wantsSample(at(301)) {
		t.Error("a busy disk was to be sampled")
	}
}
