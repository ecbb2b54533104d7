package disks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serveVerb makes the test binary the probing process.
const serveVerb = "serve-probes"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveVerb {
		if err := ServeProbes(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	every = 800 * time.Millisecond
	slack = 500 * time.Millisecond // for the tick that notices the fault, and for a busy machine
)

func mayMount(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems")
	}
	if testing.Short() {
		t.Skip("mounts file systems and waits for their faults")
	}
}

// watched is a running monitor.
type watched struct {
	*Monitor
	most *atomic.Int64 // most probes that were under way at once for one disk
}

// counting is a prober that counts the probes under way.
type counting struct {
	prober
	under atomic.Int64
	most  *atomic.Int64
}

func (c *counting) probe(t task, at func(string)) answer {
	c.most.Store(max(c.most.Load(), c.under.Add(1)))
	defer c.under.Add(-1)
	return c.prober.probe(t, at)
}

func watchReal(t *testing.T, paths ...string) watched {
	t.Helper()
	return watchWith(t, Config{Paths: paths, Command: []string{os.Args[0], serveVerb}})
}

func watchWith(t *testing.T, cfg Config) watched {
	t.Helper()
	cfg.Every, cfg.SlowAt, cfg.Log = every, 100*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.SampleBytes = 256 << 10 // at this pace a larger sample may take as long as a probe may
	m := New(cfg)
	most, makeOne := new(atomic.Int64), m.newProber
	m.newProber = func() prober { return &counting{prober: makeOne(), most: most} }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return watched{m, most}
}

func (m watched) disk(t *testing.T, path string) Disk {
	t.Helper()
	for _, d := range m.Snapshot() {
		if d.Path == path {
			return d
		}
	}
	t.Fatalf("%s is not watched", path)
	return Disk{}
}

// grace is what a machine that is busy with other tests may take on top. How fast a fault is seen is logged, and
// checked with LIFEBOAT_STRICT=1 on a quiet machine.
const grace = time.Minute

// await waits until a disk is in a state, and returns it. It logs how long that took. DIR in the words stands for the
// path.
func (m watched) await(t *testing.T, path string, want Health, why string, within time.Duration) Disk {
	t.Helper()
	why = strings.ReplaceAll(why, "DIR", path)
	return m.awaitThat(t, path, fmt.Sprintf("%v %q", want, why), within, func(d Disk) bool { return d.Health == want && strings.Contains(d.Why, why) })
}

func (m watched) awaitThat(t *testing.T, path, want string, within time.Duration, is func(Disk) bool) Disk {
	t.Helper()
	start := time.Now()
	wanted := within
	if os.Getenv("LIFEBOAT_STRICT") == "" {
		within += grace
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		changed := m.Changed()
		d := m.disk(t, path)
		if is(d) {
			t.Logf("%v after %v, wanted within %v: %s", d.Health, time.Since(start).Round(time.Millisecond), wanted, d.Why)
			return d
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("after %v: got %v %q since %v, want %s", within, d.Health, d.Why, d.Since, want)
		}
	}
}

// holdsNoMore checks that probes do not pile up while a fault lasts.
func (m watched) holdsNoMore(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(2 * every)
	defer timer.Stop()
	<-timer.C
	if n := m.most.Load(); n != 1 {
		t.Errorf("%d probes were under way at once for one disk", n)
	}
	if n := m.Stuck(); n > 1 {
		t.Errorf("%d probes are stuck on one disk", n)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// image is a small file system on a loop device, mounted.
type image struct {
	dir, device, fs string
}

func mountImage(t *testing.T, fs string, mkfs ...string) image {
	t.Helper()
	mayMount(t)
	return mountFile(t, filepath.Join(t.TempDir(), "image"), fs, mkfs...)
}

func mountFile(t *testing.T, file, fs string, mkfs ...string) image {
	t.Helper()
	for _, tool := range []string{"mkfs." + fs, "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	size := int64(64 << 20)
	if fs == "xfs" {
		size = 320 << 20 // mkfs.xfs makes nothing below 300 MiB
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs."+fs, append(mkfs, "-q", file)...)
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	i := image{dir: t.TempDir(), device: strings.TrimSpace(string(out)), fs: fs}
	t.Cleanup(func() { run(t, "losetup", "-d", i.device) })
	i.mount(t)
	t.Cleanup(func() {
		bounded(t, "the unmounting of "+i.dir, func() {
			for i.thaw() == nil || unix.Unmount(i.dir, unix.MNT_DETACH) == nil {
			}
		}, func() {})
	})
	return i
}

// bounded waits for work, and after a while calls rescue, which should end it, so that no test hangs the machine.
func bounded(t *testing.T, what string, work, rescue func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); work() }()
	for _, help := range []func(){rescue, func() { t.Errorf("gave up on %s", what) }} {
		timer := time.NewTimer(time.Minute)
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
			t.Logf("waited a minute for %s", what)
			help()
		}
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	bounded(t, name, func() {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
	}, func() {})
}

func (i image) mount(t *testing.T) {
	t.Helper()
	if err := unix.Mount(i.device, i.dir, i.fs, 0, ""); err != nil {
		t.Skipf("mount %s: %v", i.fs, err)
	}
}

func (i image) remount(t *testing.T, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", i.dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatalf("remount %s: %v", i.dir, err)
	}
}

// FIFREEZE and FITHAW of linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

func (i image) freeze(t *testing.T) {
	t.Helper()
	if err := i.ioctl(fiFreeze); err != nil {
		t.Fatalf("freeze %s: %v", i.dir, err)
	}
}

func (i image) thaw() error { return i.ioctl(fiThaw) }

func (i image) ioctl(what uint) error {
	f, err := os.Open(i.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), what, 0)
}
