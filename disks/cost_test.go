package disks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the CPU time of this process and its ended children.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var total time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}

// BenchmarkDay gives what one disk costs in a day of probes, looks and samples at the default pace, with a child:
// seconds of one core, for both processes. Each iteration is one of each; a day has 8640, 43200 and 288.
func BenchmarkDay(b *testing.B) {
	c := &child{command: []string{os.Args[0], serveVerb}}
	dir := b.TempDir()
	at := func(string) {}
	ask := func(t task) {
		if a := c.probe(t, at); a.Health != Healthy {
			b.Fatalf("got %+v", a)
		}
	}
	ask(task{Dir: dir})
	day := func(bytes int64, times float64) float64 {
		start := processorTime(b) + timeOf(b, c)
		for range b.N {
			ask(task{Dir: dir, Write: bytes})
		}
		return (processorTime(b) + timeOf(b, c) - start).Seconds() / float64(b.N) * times
	}
	probes, lookups, samples := day(probeBytes, 8640), day(0, 43200), day(4<<20, 288)
	b.ReportMetric(probes, "probes-s/day")
	b.ReportMetric(lookups, "looks-s/day")
	b.ReportMetric(samples, "samples-s/day")
	b.ReportMetric((probes+lookups+samples)/86400*100, "%core")
	b.ReportMetric(float64(probeBytes*8640+4<<20*288)/86400, "written-B/s")
	b.ReportMetric(memoryOf(b, c), "child-MiB")
	b.ReportMetric(0, "ns/op")
	c.end()
}

// timeOf returns the CPU time that a running child has used so far.
func timeOf(t testing.TB, c *child) time.Duration {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("got %v, %v", tasks, err)
	}
	var total time.Duration
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(n)
	}
	return total
}

// BenchmarkTurn gives what Run does in each second in which nothing is due, with eight paths on eight disks.
func BenchmarkTurn(b *testing.B) {
	m := New(Config{Paths: strings.Fields("/a /b /c /d /e /f /g /h")})
	m.newProber = func() prober { return &fakeDisks{answer: fine} }
	t, err := openMounts()
	if err != nil {
		b.Fatal(err)
	}
	defer t.close()
	quit := make(chan struct{})
	defer close(quit)
	m.follow(t, true)
	m.turn(quit)
	for range m.places {
		m.take(<-m.answers)
	}
	far := time.Now().Add(time.Hour)
	for _, p := range m.places {
		p.dueLook, p.dueProbe = far, far
	}
	b.ReportAllocs()
	for b.Loop() {
		m.follow(t, false)
		m.turn(quit)
		m.Snapshot()
	}
}

// memoryOf returns how much memory a running child holds for itself alone, in MiB.
func memoryOf(t testing.TB, c *child) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	private := 0
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "Private_") {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			private += n
		}
	}
	return float64(private) / 1024
}
