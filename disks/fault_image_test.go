package disks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/sickfs"
)

// onImages runs a test on a fresh ext4 and a fresh XFS.
func onImages(t *testing.T, test func(t *testing.T, i image)) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			t.Parallel()
			test(t, mountImage(t, fs))
		})
	}
}

func TestFullDisk(t *testing.T) {
	onImages(t, func(t *testing.T, i image) {
		m := watchReal(t, i.dir)
		d := m.await(t, i.dir, Healthy, "", 2*every)
		if d.FS != i.fs || "/dev/"+d.Name != i.device || d.Mount != i.dir || d.UsableBytes <= 0 {
			t.Errorf("got %+v, want %s on %s with room", d, i.fs, i.device)
		}
		ballast := filepath.Join(i.dir, "ballast")
		if err := fill(ballast); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("fill: got %v", err)
		}
		// XFS may still count blocks as free when it can make no inode of them: then the error of the probe stands.
		d = m.await(t, i.dir, HighUsage, "", 2*every+slack)
		if d.UsableBytes != 0 {
			t.Errorf("%d bytes are usable on a full disk", d.UsableBytes)
		}
		if _, _, ok := m.Take(1, []string{i.dir}); ok {
			t.Error("a byte was reserved on a full disk")
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		m.await(t, i.dir, Healthy, "", 4*every)
	})
}

func fill(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for n := 1 << 20; n >= 4096; n /= 2 {
		for b := make([]byte, n); err == nil; {
			_, err = f.Write(b)
		}
		if n > 4096 {
			err = nil
		}
	}
	return errors.Join(err, f.Sync())
}

func TestOutOfInodes(t *testing.T) {
	t.Parallel()
	i := mountImage(t, "ext4", "-N", "64")
	m := watchReal(t, i.dir)
	m.await(t, i.dir, Healthy, "", 2*every)
	names := []string{}
	for n := range 1000 {
		name := filepath.Join(i.dir, fmt.Sprint(n))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			break
		}
		names = append(names, name)
	}
	d := m.await(t, i.dir, HighUsage, "inodes of", 2*every+slack)
	if d.FreeBytes == 0 || d.UsableBytes != 0 {
		t.Errorf("got %d bytes free and %d usable, want some free and none usable", d.FreeBytes, d.UsableBytes)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	m.await(t, i.dir, Healthy, "", 4*every)
}

func TestReadOnlyRemount(t *testing.T) {
	onImages(t, func(t *testing.T, i image) {
		m := watchReal(t, i.dir)
		m.await(t, i.dir, Healthy, "", 2*every)
		i.remount(t, unix.MS_RDONLY)
		d := m.await(t, i.dir, ReadOnly, "mounted read-only", 2*every+slack)
		if !d.Health.Dying() || d.UsableBytes != 0 {
			t.Errorf("got %+v", d)
		}
		i.remount(t, 0)
		m.await(t, i.dir, Healthy, "", 4*every)
	})
}

// A bind mount may be read-only while the disk is not, and is on the same disk all the same.
func TestReadOnlyBindMount(t *testing.T) {
	t.Parallel()
	i := mountImage(t, "ext4")
	bound := t.TempDir()
	if err := unix.Mount(i.dir, bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(bound, unix.MNT_DETACH) })
	if err := unix.Mount("", bound, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(i.dir, link); err != nil {
		t.Fatal(err)
	}
	m := watchReal(t, i.dir, bound, link)
	a := m.await(t, i.dir, Healthy, "", 2*every)
	b := m.await(t, bound, ReadOnly, "mounted read-only", 2*every)
	c := m.await(t, link, Healthy, "", 2*every)
	if a.Device != b.Device || a.Device != c.Device || c.Mount != i.dir {
		t.Errorf("three paths to one disk: got %+v\n%+v\n%+v", a, b, c)
	}
	_, release, ok := m.Take(1<<20, []string{i.dir})
	if !ok {
		t.Fatal("nothing was reserved")
	}
	if c := m.disk(t, link); c.ReservedBytes != 1<<20 {
		t.Errorf("what is reserved by one path: got %d by another", c.ReservedBytes)
	}
	release(1 << 20)
}

func TestFrozenFileSystem(t *testing.T) {
	onImages(t, func(t *testing.T, i image) { testFrozen(t, i, watchReal(t, i.dir), func() {}) })
}

// Without a child, a probe that hangs holds one of our threads. The test runs alone, to count them.
func TestFrozenFileSystemProbedFromHere(t *testing.T) {
	i := mountImage(t, "ext4")
	m := watchWith(t, Config{Paths: []string{i.dir}})
	goroutines, system := runtime.NumGoroutine(), threads(t)
	testFrozen(t, i, m, func() {
		if n := runtime.NumGoroutine(); n > goroutines+3 {
			t.Errorf("goroutines went from %d to %d", goroutines, n)
		}
		if n := threads(t); n > system+5 {
			t.Errorf("threads went from %d to %d", system, n)
		}
	})
}

func testFrozen(t *testing.T, i image, m watched, during func()) {
	m.await(t, i.dir, Healthy, "", 2*every)
	i.freeze(t)
	m.await(t, i.dir, IOHang, "the device has nothing to do", 2*every+slack)
	if n := m.Stuck(); n != 1 {
		t.Errorf("%d probes are stuck, want 1", n)
	}
	m.holdsNoMore(t)
	timer := time.NewTimer(3 * every) // past the time at which the probe is killed, which does not help here
	defer timer.Stop()
	<-timer.C
	during()
	if d := m.disk(t, i.dir); d.Health != IOHang || m.Stuck() != 1 {
		t.Errorf("while it lasts: got %v, %d stuck", d.Health, m.Stuck())
	}
	if err := i.thaw(); err != nil {
		t.Fatal(err)
	}
	m.await(t, i.dir, Healthy, "", 8*every)
	if n := m.Stuck(); n != 0 {
		t.Errorf("%d probes are stuck after the thaw", n)
	}
}

func TestVanishedMount(t *testing.T) {
	onImages(t, func(t *testing.T, i image) {
		m := watchReal(t, i.dir)
		m.await(t, i.dir, Healthy, "", 2*every)
		if err := unix.Unmount(i.dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		d := m.await(t, i.dir, Missing, "nothing is mounted at DIR any more", every)
		if _, _, ok := m.Take(1, []string{i.dir}); ok || d.UsableBytes != 0 {
			t.Errorf("a disk that is gone was picked, with %d bytes", d.UsableBytes)
		}
		i.mount(t)
		m.await(t, i.dir, Healthy, "", 4*every)
	})
}

// A device fails below the file system: the device's image lies on a sick file system. If an ext4's journal meets the error
// before a probe does (it writes every five seconds by itself), the file system is read-only from then on.
func TestSickDevice(t *testing.T) {
	for ill, row := range map[sickfs.Ailment]struct {
		want string
		is   func(Disk) bool
	}{
		sickfs.Errs: {"an input/output error, or read-only", func(d Disk) bool {
			return d.Health == ReadWriteFailure && strings.Contains(d.Why, "input/output error") || d.Health == ReadOnly
		}},
		sickfs.Hangs: {"a hang", func(d Disk) bool { return d.Health == IOHang && strings.Contains(d.Why, "under way") }},
	} {
		for _, fs := range []string{"ext4", "xfs"} {
			t.Run(string(ill)+" below "+fs, func(t *testing.T) {
				t.Parallel()
				dir, s := mountSick(t)
				i := mountFile(t, filepath.Join(dir, "image"), fs)
				t.Cleanup(s.Heal) // before the file system is unmounted
				m := watchReal(t, i.dir)
				m.await(t, i.dir, Healthy, "", 2*every)
				s.Fall(ill)
				m.awaitThat(t, i.dir, row.want, 2*every+slack, row.is)
				m.holdsNoMore(t)
				s.Heal()
				if ill == sickfs.Hangs {
					m.await(t, i.dir, Healthy, "", 10*every)
				}
			})
		}
	}
}

func TestMissingDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	m := watchReal(t, dir)
	m.await(t, dir, Missing, "look at DIR: no such file or directory", 2*every)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.await(t, dir, Healthy, "", 4*every)
}
