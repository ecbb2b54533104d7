package disks

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestHungDiskIsAFault(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		if got := healths(m); got != "HEALTHY" {
			t.Fatalf("at first: got %s", got)
		}
		changed := m.Changed()
		f.freeze()
		start := time.Now()
		<-changed
		d := m.Snapshot()[0]
		if took := time.Since(start); d.Health != IOHang || took > 20*time.Second || !strings.Contains(d.Why, `hangs at the step "sync"`) {
			t.Errorf("after %v: got %v %q", took, d.Health, d.Why)
		}
		time.Sleep(time.Hour)
		if n := f.under.Load(); n != 1 || m.Stuck() != 1 {
			t.Errorf("after an hour %d probes are under way and %d counted, want 1", n, m.Stuck())
		}
		if d := m.Snapshot()[0]; d.Health != IOHang || d.UsableBytes != 0 || d.Since.Sub(start) > 20*time.Second {
			t.Errorf("got %+v", d)
		}
		f.thaw()
		time.Sleep(30 * time.Second)
		if got := healths(m); got != "HEALTHY" || m.Stuck() != 0 {
			t.Errorf("after the thaw: got %s, %d stuck", got, m.Stuck())
		}
	})
}

// The machine stands still for a minute while a probe is under way, as one that is moved to another host. That is no fault of
// its disk. A disk that hangs after that is found out as soon as ever.
func TestMachineThatStandsStillHasNoHungDisk(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		changed := m.Changed()
		f.freeze()
		time.Sleep(5 * time.Second) // a probe is under way
		f.mu.Lock()
		f.still = time.Minute
		f.mu.Unlock()
		time.Sleep(61 * time.Second)
		f.thaw()
		time.Sleep(time.Second)
		select {
		case <-changed:
			t.Errorf("the disk became %v: %q", m.Snapshot()[0].Health, m.Snapshot()[0].Why)
		default:
		}
		f.freeze()
		time.Sleep(22 * time.Second)
		if got := healths(m); got != "IO_HANG" {
			t.Errorf("then it hangs: got %s", got)
		}
		f.thaw()
	})
}

// A hanging probe that can be killed is killed, and another finds out whether the way is free.
func TestHungProbeIsKilledAndTriedAgain(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.freeze()
		time.Sleep(10 * time.Minute)
		if got := healths(m); got != "IO_HANG" {
			t.Errorf("got %s", got)
		}
		if n := f.most.Load(); n != 1 {
			t.Errorf("%d probes at once, want 1", n)
		}
		if n := f.asked.Load(); n < 10 || n > 30 {
			t.Errorf("%d probes in ten minutes, want one in forty seconds", n)
		}
		f.thaw()
		time.Sleep(30 * time.Second)
		if got := healths(m); got != "HEALTHY" {
			t.Errorf("after the thaw: got %s", got)
		}
	})
}

// A device that is busy with other work is slow for a while before it counts as hung.
func TestBusyDeviceIsSlowFirst(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		f.freeze()
		work := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				f.mu.Lock()
				f.count.Writes++
				f.count.Writing = 5
				f.mu.Unlock()
			}
		}
		work(25 * time.Second)
		if d := m.Snapshot()[0]; d.Health != Slow || !strings.Contains(d.Why, "works on") {
			t.Errorf("while it works: got %v %q", d.Health, d.Why)
		}
		work(30 * time.Second)
		if d := m.Snapshot()[0]; d.Health != IOHang {
			t.Errorf("when that lasts: got %v %q", d.Health, d.Why)
		}
		time.Sleep(30 * time.Second)
		f.mu.Lock()
		f.count.Writing = 5
		f.mu.Unlock()
		time.Sleep(30 * time.Second)
		if d := m.Snapshot()[0]; d.Health != IOHang {
			t.Errorf("got %v %q", d.Health, d.Why)
		}
		f.thaw()
	})
}

// Work that a device did before it stood still does not count.
func TestIdleDeviceIsNamed(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		f.freeze()
		time.Sleep(12 * time.Second) // a probe is under way
		f.mu.Lock()
		f.count.Writes++
		f.mu.Unlock()
		time.Sleep(time.Minute)
		if d := m.Snapshot()[0]; d.Health != IOHang || !strings.Contains(d.Why, "the device has nothing to do") {
			t.Errorf("got %v %q", d.Health, d.Why)
		}
		f.thaw()
	})
}

func TestStalledDeviceIsNamed(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		f.freeze()
		f.mu.Lock()
		f.count = counters{Writes: 10, Writing: 3}
		f.mu.Unlock()
		time.Sleep(40 * time.Second)
		if d := m.Snapshot()[0]; d.Health != IOHang || !strings.Contains(d.Why, "the device gets nothing done, has 0 reads and 3 writes under way") {
			t.Errorf("got %v %q", d.Health, d.Why)
		}
		f.thaw()
	})
}

// Paths on one device share its hang, its room and its queue of questions. A path whose disk is not known yet has its
// own.
func TestPathsShareADevice(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x", "/mnt/a/y", "/mnt/b"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		time.Sleep(time.Second)
		all := m.Snapshot()
		if all[0].Device != "8:17" || all[1].Device != "8:17" || all[2].Device != "8:33" {
			t.Fatalf("got %+v", all)
		}
		_, release, ok := m.Take(20*gib, []string{"/mnt/a/x"})
		if all = m.Snapshot(); !ok || all[1].UsableBytes != 30*gib || all[2].UsableBytes != 50*gib {
			t.Errorf("got %v, %+v", ok, all)
		}
		release(20 * gib)
		f.deaf = true
		f.freeze()
		time.Sleep(25 * time.Second)
		if n := f.under.Load(); n != 2 || healths(m) != "IO_HANG IO_HANG IO_HANG" {
			t.Errorf("%d under way for two disks, %s", n, healths(m))
		}
		f.thaw()
	})
}

func TestMountThatGoesIsMissing(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x", "/srv"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.remount(table1(t, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"))
		changed := m.Changed()
		<-changed
		d := m.Snapshot()[0]
		if d.Health != Missing || d.Why != "nothing is mounted at /mnt/a any more: what is written here would land on /" {
			t.Errorf("got %v %q", d.Health, d.Why)
		}
		asked := f.asked.Load()
		f.say(func(t task) answer {
			if t.Dir != "/srv" {
				panic("asked " + t.Dir)
			}
			return fine(t)
		})
		time.Sleep(time.Minute)
		if f.asked.Load() == asked || healths(m) != "MISSING HEALTHY" {
			t.Errorf("got %s", healths(m))
		}
		f.say(fine)
		f.remount(table1(t, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 8:49 / /mnt/a rw - xfs /dev/sdd1 rw\n"))
		time.Sleep(30 * time.Second)
		if d := m.Snapshot()[0]; d.Health != Healthy || d.Device != "8:49" || d.FS != "xfs" {
			t.Errorf("another disk in its place: got %+v", d)
		}
	})
}

func TestDeviceChangesBelowAPath(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a/x"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.remount(table1(t, twoDisks+"9 2 8:49 / /mnt/a/x rw - xfs /dev/sdd1 rw\n"))
		time.Sleep(15 * time.Second)
		if d := m.Snapshot()[0]; d.Health != Healthy || d.Device != "8:49" || d.Mount != "/mnt/a/x" {
			t.Errorf("got %+v", d)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if n := len(m.devices); n != 1 {
			t.Errorf("%d devices are kept, want 1", n)
		}
	})
}

func TestAnswersThatAreLostSayNothing(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.say(func(task) answer { return answer{Lost: true, finding: finding{Why: "exec: no such file"}} })
		time.Sleep(35 * time.Second)
		if got := healths(m); got != "HEALTHY" {
			t.Errorf("got %s", got)
		}
		time.Sleep(20 * time.Second)
		if d := m.Snapshot()[0]; d.Health != Unknown || !strings.Contains(d.Why, "no probe has come to an end") || d.UsableBytes != 0 {
			t.Errorf("after a long while: got %v %q, %d usable", d.Health, d.Why, d.UsableBytes)
		}
		f.say(fine)
		time.Sleep(10 * time.Second)
		if got := healths(m); got != "HEALTHY" {
			t.Errorf("got %s", got)
		}
	})
}

// The log says once that a disk's probes are being lost, though those of another come back.
func TestProbesThatAreLostAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	inBubble(t, Config{Paths: []string{"/mnt/a", "/mnt/b"}, Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, _ *Monitor, f *fakeDisks) {
		f.say(func(q task) answer {
			if q.Dir == "/mnt/a" {
				return answer{Lost: true, finding: finding{Why: "exec: no such file"}}
			}
			return fine(q)
		})
		time.Sleep(5 * time.Minute)
	})
	if n := strings.Count(log.String(), "a probe was lost"); n != 1 {
		t.Errorf("it says so %d times, want once:\n%s", n, &log)
	}
}

// Many places on a slow disk wait for each other's probes, longer than a place may be silent that has its disk for
// itself.
func TestPlacesOfASlowDiskStayKnown(t *testing.T) {
	paths := []string{"/mnt/a/1", "/mnt/a/2", "/mnt/a/3", "/mnt/a/4", "/mnt/a/5", "/mnt/a/6"}
	inBubble(t, Config{Paths: paths}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		time.Sleep(time.Minute)
		f.say(func(t task) answer {
			time.Sleep(9 * time.Second)
			a := fine(t)
			a.Wrote = 9 * time.Second
			return a
		})
		time.Sleep(3 * time.Minute)
		for range 120 {
			time.Sleep(time.Second)
			for _, d := range m.Snapshot() {
				if d.Health != Slow || d.UsableBytes == 0 {
					t.Errorf("got %s %v %q with %d bytes of room, want it SLOW", d.Path, d.Health, d.Why, d.UsableBytes)
				}
			}
		}
		f.say(fine)
		time.Sleep(10 * time.Second)
	})
}

func TestWorkThatFailsCountsAndAsksForAProbe(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		time.Sleep(time.Second)
		asked := f.asked.Load()
		m.Fault("/mnt/a/block", unix.ENOENT)
		synctest.Wait()
		if f.asked.Load() != asked+1 || healths(m) != "HEALTHY" {
			t.Errorf("a file that is not there: %d more questions, %s", f.asked.Load()-asked, healths(m))
		}
		m.Fault("/mnt/a/block", fmt.Errorf("sync: %w", unix.EIO))
		if got := healths(m); got != "READ_WRITE_FAILURE" {
			t.Errorf("an error of the disk: got %s", got)
		}
		m.Fault("/elsewhere", unix.EIO)
		for range 70 {
			m.Fault("/mnt/a/block", unix.EIO)
		}
		if d := m.Snapshot()[0]; d.Health != Critical || d.Errors != 65 {
			t.Errorf("many: got %v with %d errors", d.Health, d.Errors)
		}
	})
}

func TestSlowDisk(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.say(func(t task) answer {
			a := fine(t)
			a.Wrote = 2 * time.Second
			return a
		})
		time.Sleep(21 * time.Second)
		if got := healths(m); got != "SLOW" {
			t.Errorf("got %s", got)
		}
		f.say(fine)
		time.Sleep(50 * time.Second)
		if got := healths(m); got != "HEALTHY" {
			t.Errorf("got %s", got)
		}
	})
}

func TestIdleDiskIsSampled(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a", "/mnt/a/y"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		if r := m.Snapshot()[0].Flush; r.Known() {
			t.Errorf("before anything was seen: got %+v", r)
		}
		time.Sleep(time.Hour)
		d := m.Snapshot()[0]
		if want := (Rate{100 << 20, "probe"}); d.Flush != want || d.Fetch != want {
			t.Errorf("got %+v, %+v, want %+v", d.Flush, d.Fetch, want)
		}
		if perSecond := f.written.Load() / 3600; perSecond > 1<<20/32 {
			t.Errorf("%d bytes a second were written, want next to nothing", perSecond)
		}
		for range 100 {
			m.Observe("/mnt/a/block", Flush, 30<<20, time.Second)
		}
		time.Sleep(windowSpan + 2*time.Second)
		if d := m.Snapshot()[0]; d.Flush != (Rate{30 << 20, "work"}) || d.Fetch.From != "probe" {
			t.Errorf("got %+v, %+v", d.Flush, d.Fetch)
		}
	})
}

func TestRunEndsWhileADiskHangs(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.freeze()
		time.Sleep(30 * time.Second)
	})
}

// A path may be a link to a disk that hangs from the start. Nobody knows that yet, and it must not harm its neighbours.
func TestUnknownPathHangsAlone(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/srv/well"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		hold := make(chan struct{})
		f.say(func(t task) answer {
			a := fine(t)
			if t.Dir == "/srv/link" {
				<-hold
				a.Dir = "/mnt/a/x"
			}
			return a
		})
		m.setPaths([]string{"/srv/well", "/srv/link"})
		time.Sleep(time.Minute)
		if got := healths(m); got != "HEALTHY IO_HANG" || m.Stuck() != 1 {
			t.Errorf("got %s, %d stuck", got, m.Stuck())
		}
		close(hold)
		time.Sleep(30 * time.Second)
		if d := m.Snapshot()[1]; d.Health != Healthy || d.Device != "8:17" || d.Mount != "/mnt/a" {
			t.Errorf("once it answered: got %+v", d)
		}
	})
}

func TestLateAnswerIsNoGoodOne(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		time.Sleep(9 * time.Second) // the next question is a probe
		f.freeze()
		time.Sleep(20 * time.Second)
		f.thaw()
		time.Sleep(5 * time.Second) // the late answer, and the probe that it called for
		if d := m.Snapshot()[0]; d.Health != IOHang || !strings.Contains(d.Why, "1 of 2") {
			t.Errorf("got %v %q", d.Health, d.Why)
		}
	})
}

func TestProbeOfAMountThatIsGoneIsKilled(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.freeze()
		time.Sleep(15 * time.Second)
		if m.Stuck() != 1 {
			t.Fatalf("%d stuck, want 1", m.Stuck())
		}
		f.remount(table1(t, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"))
		time.Sleep(2 * time.Second)
		if n := f.under.Load(); n != 0 || m.Stuck() != 0 || healths(m) != "MISSING" {
			t.Errorf("%d under way, %d stuck, %s", n, m.Stuck(), healths(m))
		}
	})
}

// However long a slow disk takes for each, all places on it get their turns.
func TestPlacesOnASlowDeviceTakeTurns(t *testing.T) {
	paths := []string{"/mnt/a/cache", "/mnt/a/spark", "/mnt/a/vault", "/mnt/a/data"}
	inBubble(t, Config{Paths: paths}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.say(func(t task) answer {
			a := fine(t)
			if t.Write > 0 {
				time.Sleep(6 * time.Second)
				a.Wrote = 6 * time.Second
			}
			return a
		})
		time.Sleep(5 * time.Minute)
		if got := healths(m); got != "SLOW SLOW SLOW SLOW" {
			t.Errorf("got %s", got)
		}
		for range 60 { // a disk that is in use, and often refuses
			m.Fault(paths[0], unix.EIO)
			time.Sleep(5 * time.Second)
		}
		if got := healths(m); got != "READ_WRITE_FAILURE SLOW SLOW SLOW" {
			t.Errorf("while one of them refuses what it is asked: got %s", got)
		}
		f.say(fine)
		time.Sleep(10 * time.Second) // for the probe under way
	})
}

// A disk that hung before it was ever known is replaced. The probe that is stuck on it holds up nothing on the other.
func TestDiskThatHungFromTheStartIsReplaced(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		f.deaf = true
		hold := make(chan struct{})
		f.say(func(t task) answer {
			if t.Dir == "/mnt/b/x" {
				<-hold
			}
			return fine(t)
		})
		m.setPaths([]string{"/mnt/b/x"})
		time.Sleep(time.Minute)
		if got := healths(m); got != "IO_HANG" {
			t.Fatalf("got %s", got)
		}
		f.say(fine)
		f.remount(table1(t, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 8:49 / /mnt/b rw - xfs /dev/sdd1 rw\n"))
		time.Sleep(time.Minute)
		if d := m.Snapshot()[0]; d.Health != Healthy || d.Device != "8:49" || m.Stuck() != 1 {
			t.Errorf("got %+v, %d stuck", d, m.Stuck())
		}
		close(hold)
		time.Sleep(time.Minute)
		m.mu.Lock()
		defer m.mu.Unlock()
		if d := m.devices; len(d) != 1 || d["8:49"] == nil {
			t.Errorf("got the devices %v", d)
		}
	})
}
