package disks

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	good = finding{Health: Healthy}
	bad  = finding{ReadWriteFailure, "input/output error"}
)

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }

func TestBadNewsCountsAtOnceAndGoodNewsMustLast(t *testing.T) {
	var j judge
	j.see(at(0), good, true)
	if j.state.Health != Healthy || !j.since.Equal(at(0)) {
		t.Fatalf("the first answer: got %v since %v", j.state, j.since)
	}
	if !j.see(at(10), bad, true) || j.state != bad || !j.since.Equal(at(10)) {
		t.Fatalf("an error: got %v since %v", j.state, j.since)
	}
	if j.see(at(20), good, true) || j.state.Health != ReadWriteFailure {
		t.Errorf("one good probe ended it: got %v", j.state)
	}
	if want := "well again for 1 of 2 probes"; !strings.Contains(j.why(), want) {
		t.Errorf("got %q, want %q in it", j.why(), want)
	}
	j.see(at(25), good, false)
	if j.state.Health != ReadWriteFailure {
		t.Errorf("a look counted as a probe: got %v", j.state)
	}
	if !j.see(at(30), good, true) || j.state.Health != Healthy || j.why() != "" {
		t.Errorf("two good probes: got %v", j.state)
	}
}

func TestLeavingGoesToTheWorstThatWasSeenOnTheWay(t *testing.T) {
	var j judge
	j.see(at(0), finding{IOHang, "hung"}, true)
	j.see(at(10), finding{Slow, "late"}, true)
	j.see(at(20), good, true)
	if j.state.Health != Slow {
		t.Errorf("got %v, want SLOW", j.state)
	}
}

func TestFlappingIsDamped(t *testing.T) {
	var j judge
	j.see(at(0), good, true)
	now := 0
	probesToLeave := func() int {
		now += 10
		j.see(at(now), bad, true)
		for n := 1; ; n++ {
			now += 10
			if j.see(at(now), good, true) {
				return n
			}
		}
	}
	var got []int
	for range 6 {
		got = append(got, probesToLeave())
	}
	now += 600
	got = append(got, probesToLeave())
	if want := "[2 4 8 16 32 32 2]"; fmt.Sprint(got) != want {
		t.Errorf("good probes until the fault was over: got %v, want %s: the last after ten quiet minutes", got, want)
	}
}

// A hanging probe is looked at every second, and is one error all the same. It must not add up to Critical: blocks are carried off a
// critical disk, and a disk that hangs cannot be read.
func TestADiskThatHangsForLongHangs(t *testing.T) {
	var j judge
	for i := range 20 * criticalAbove {
		if j.see(at(i), finding{IOHang, "hung"}, true); j.state.Health != IOHang {
			t.Fatalf("after %d s: got %v (%s), want that it hangs", i, j.state.Health, j.state.Why)
		}
	}
}

// Celeborn's rule: more than 64 errors of ten minutes are critical, 32 and fewer are not.
func TestManyErrorsAreCritical(t *testing.T) {
	var j judge
	j.see(at(0), good, true)
	for n := range 64 {
		j.see(at(n), bad, false)
	}
	if j.state.Health != ReadWriteFailure {
		t.Fatalf("64 errors: got %v", j.state)
	}
	j.see(at(64), bad, false)
	if j.state.Health != Critical || !strings.Contains(j.state.Why, "more than 64 errors") || !strings.Contains(j.state.Why, bad.Why) {
		t.Fatalf("65 errors: got %v", j.state)
	}
	for n := range 10_000 { // more take no memory
		j.see(at(65), bad, false)
		if len(j.errors) > 65 {
			t.Fatalf("%d errors are kept after %d", len(j.errors), n)
		}
	}
	for second := 70; second < 665; second += 10 {
		if j.see(at(second), good, true); j.state.Health != Critical {
			t.Fatalf("after %d s: got %v with %d errors left", second, j.state, j.recent(at(second)))
		}
	}
	j.see(at(670), good, true)
	j.see(at(680), good, true)
	if j.state.Health != Healthy {
		t.Errorf("once they are forgotten: got %v", j.state)
	}
}

func TestCriticalLastsUntilHalfIsForgotten(t *testing.T) {
	var j judge
	for n := range 65 {
		j.see(at(n), bad, false)
	}
	// At 600+32 s the errors of seconds 33 to 64 count: 32 of them.
	j.see(at(630), good, true)
	j.see(at(631), good, true)
	if j.state.Health != Critical {
		t.Errorf("with %d left: got %v", j.recent(at(631)), j.state)
	}
	j.see(at(632), good, true)
	j.see(at(633), good, true)
	if j.state.Health != Healthy {
		t.Errorf("with %d left: got %v", j.recent(at(633)), j.state)
	}
}

func TestFullDisksDoNotCountAsBroken(t *testing.T) {
	var j judge
	for n := range 200 {
		j.see(at(n), finding{HighUsage, "full"}, true)
	}
	if j.state.Health != HighUsage {
		t.Errorf("got %v", j.state)
	}
}

// Celeborn's rule for when a disk counts as full: free space below 5 GiB. It has no margin for the way back.
func TestCrowd(t *testing.T) {
	const gib = 1 << 30
	const reserve = 5 * gib
	var c crowd
	for _, row := range []struct {
		total, free int64
		want        Health
	}{
		{20 * gib, 6 * gib, Healthy},
		{20 * gib, 5 * gib, HighUsage},
		{20 * gib, 6 * gib, HighUsage}, // within the margin
		{20 * gib, 7 * gib, Healthy},
		{20 * gib, 6 * gib, Healthy}, // and down again to the reserve only
		{100 * gib, 5 * gib, HighUsage},
		{100 * gib, 6 * gib, HighUsage}, // the margin: a quarter of the reserve
		{100 * gib, 7 * gib, Healthy},
		{1000 * gib, 5 * gib, HighUsage},
		{1000 * gib, 15 * gib, HighUsage}, // a hundredth of a large disk
		{1000 * gib, 16 * gib, Healthy},
	} {
		if got := c.see(extent{Total: row.total, Free: row.free}, reserve); got.Health != row.want {
			t.Errorf("%d of %d GiB free: got %v, want %v", row.free/gib, row.total/gib, got, row.want)
		}
	}
	if got, want := new(crowd).see(extent{Total: 190770176, Free: 176075776}, gib).Why, "168 MiB of 182 MiB are free: want more than 1.0 GiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := c.see(extent{Total: 100 * gib, Free: 50 * gib, Inodes: 1_000_000, InodesFree: 1000}, reserve); got.Health != HighUsage {
		t.Errorf("a thousandth of the inodes is left: got %v", got)
	}
	if got := c.see(extent{Total: 100 * gib, Free: 50 * gib, Inodes: 1_000_000, InodesFree: 1500}, reserve); got.Health != HighUsage {
		t.Errorf("within the inodes' margin: got %v", got)
	}
	if got := c.see(extent{Total: 100 * gib, Free: 50 * gib, Inodes: 1_000_000, InodesFree: 2500}, reserve); got.Health != Healthy {
		t.Errorf("inodes came back: got %v", got)
	}
	if got := new(crowd).see(extent{Total: gib, Free: gib}, 0); got.Health != Healthy {
		t.Errorf("no inodes are counted, nothing is kept: got %v", got)
	}
}

func TestPace(t *testing.T) {
	var p pace
	for i, row := range []struct {
		took time.Duration
		want Health
	}{
		{3 * time.Second, Healthy}, // one slow probe says nothing
		{10 * time.Millisecond, Healthy},
		{10 * time.Millisecond, Healthy},
		{2 * time.Second, Healthy},
		{2 * time.Second, Slow},
		{700 * time.Millisecond, Slow},
		{700 * time.Millisecond, Slow}, // above half of the limit
		{100 * time.Millisecond, Slow},
		{100 * time.Millisecond, Healthy},
		{700 * time.Millisecond, Healthy},
		{700 * time.Millisecond, Healthy},
	} {
		if got := p.see(row.took, time.Second); got.Health != row.want {
			t.Errorf("probe %d, %v: got %v, want %v", i, row.took, got, row.want)
		}
	}
}

func TestErrorsOfTheKernel(t *testing.T) {
	for errno, want := range map[syscall.Errno]Health{
		syscall.EIO: ReadWriteFailure, syscall.EROFS: ReadOnly, syscall.ENOSPC: HighUsage, syscall.EDQUOT: HighUsage,
		syscall.ENOENT: Missing, syscall.ENOTCONN: Missing, syscall.ESTALE: Missing, syscall.ENODEV: Missing, syscall.EACCES: ReadWriteFailure,
	} {
		f := faultOf("sync a probe at /d", fmt.Errorf("somewhere: %w", errno))
		if f.Health != want || f.Why != "sync a probe at /d: "+errno.Error() {
			t.Errorf("%v: got %v, want %v", errno, f, want)
		}
	}
	if f := faultOf("look", errors.New("too many links")); f != (finding{ReadWriteFailure, "look: too many links"}) {
		t.Errorf("got %v", f)
	}
}

func TestHealthInWords(t *testing.T) {
	for h := Unknown; h <= Missing; h++ {
		text, err := h.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Health
		if err := got.UnmarshalText(text); err != nil || got != h {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	if err := new(Health).UnmarshalText([]byte("FINE")); err == nil {
		t.Error("FINE was taken for a health")
	}
	if Unknown.Writable() || !Slow.Writable() || HighUsage.Dying() || !Critical.Dying() || IOHang.Dying() {
		t.Error("who may write, and who is dying")
	}
}
