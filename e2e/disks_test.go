package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// probeEvery is how often the agents of these stories probe.
const probeEvery = "disks: {every: 1s}"

type diskView struct {
	Node, Path, Health, Why string
	Total                   int64  `json:"total_bytes"`
	Usable                  int64  `json:"usable_bytes"`
	Slots                   *int64 `json:"slots"`
	Flush                   *int64 `json:"flush_bytes_per_second"`
	Closed                  bool
}

// disk returns nil once `lifeboat disks`, asked on the node, shows that health for the directory's disk.
func (n *node) disk(path, health string) func() error {
	return func() error {
		s := n.verb("disks", "-o", "json")
		if s.code != 0 {
			return fmt.Errorf("%s: %s", s.line, s.stderr)
		}
		for _, d := range decode[[]diskView](s) {
			if d.Path == path && d.Health == health {
				return nil
			} else if d.Path == path {
				return fmt.Errorf("%s is %s on %s, want %s: %s", path, d.Health, n.host, health, d.Why)
			}
		}
		return fmt.Errorf("%s does not tell of %s", n.host, path)
	}
}

// A full disk is shown as full and takes no blocks until there is room again.
func TestFullDiskTakesNothing(t *testing.T) {
	disk := mountImage(t, "ext4") // before the fleet, so that the fleet has ended when it is unmounted
	f := newFleet(t)
	a := f.agent("host-a", probeEvery)
	b := f.agent("host-b", probeEvery, "data_dir: "+disk.dir+"/data", "receive: {reserve_bytes: 1MiB}",
		"stores: [{name: cache, kind: cache, layout: files, paths: ["+disk.dir+"/cache]}]")
	f.up()
	cache := disk.dir + "/cache"
	f.until(b.disk(cache, "HEALTHY"))

	ballast := filepath.Join(disk.dir, "ballast")
	fillUp(t, ballast)
	f.until(b.disk(cache, "HIGH_USAGE"))
	b.verb("disks").exits(0).tells("HIGH_USAGE", "are free")
	f.until(a.knows(0))
	if v := b.seen(); v.State != "ACTIVE" || v.Excluded {
		t.Errorf("a full disk is well: got %+v", v)
	}
	f.verb("disks").exits(0).tells("host-a:", "host-b:")
	for _, d := range decode[[]diskView](f.verb("disks", "--node", "host-b", "-o", "json").exits(0)) {
		if d.Node != "host-b" || d.Usable != 0 || d.Total == 0 || d.Slots == nil || d.Flush != nil {
			t.Errorf("the coordinator tells of %+v, want its size, nothing usable, and a speed that nobody knows", d)
		}
	}
	f.until(func() error { // the second probe measures the speed of writing
		for _, d := range decode[[]diskView](f.verb("disks", "--node", "host-a", "-o", "json").exits(0)) {
			if d.Usable == 0 || d.Flush == nil {
				return fmt.Errorf("the coordinator tells of %+v, want room and a speed", d)
			}
		}
		return nil
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.until(b.disk(cache, "HEALTHY"))
	f.until(a.knows(1))
}

// A frozen file system hangs every process that writes to it. The agent says so, goes on beating, and leaves in time:
// the blocks on the other disk are moved. For the frozen disk one entry names the directory as lost, because its files
// could not be listed.
func TestFrozenDiskDelaysNobody(t *testing.T) {
	disk := mountImage(t, "ext4") // before the fleet, so that the fleet has ended when it is unmounted
	f := newFleet(t)
	frozen := disk.dir + "/cache"
	a, b := f.agent("host-a"), f.agent("host-b", probeEvery)
	a.reconfigure(probeEvery, fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, paths: [%s, %s]}]", a.cache(), frozen))
	a.fill(10, 256<<10)
	if err := os.MkdirAll(frozen+"/sick", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		name := fmt.Sprint(i)
		if err := os.WriteFile(filepath.Join(frozen, "sick", name), []byte(strings.Repeat(name, 100<<10)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.up()
	f.until(a.disk(frozen, "HEALTHY"))

	disk.freeze()
	f.until(a.disk(frozen, "IO_HANG"))
	a.verb("disks").exits(0).tells("IO_HANG", "does not come back")
	f.until(func() error {
		for _, d := range a.seen().Disks {
			if d.Path == frozen && d.Health == "IO_HANG" {
				return nil
			}
		}
		return errors.New("the coordinator has not heard that the disk hangs")
	})
	for range 3 {
		f.until(a.beatsAfter(time.Now()))
		if v := a.seen(); v.State != "ACTIVE" || v.Excluded {
			t.Errorf("while a disk hangs: got %+v, want a node that is active and not excluded", v)
		}
	}

	began := time.Now()
	a.verb("decommission", "--self", "--timeout", drainLead.String(), "--reason", "a frozen disk").exits(0)
	m := *a.drained().Manifest
	if took := time.Since(began); took > drainLead {
		t.Errorf("the node was done after %s, its deadline was %s", took, drainLead)
	}
	f.until(a.is("DECOMMISSIONED"))
	m = a.manifest()
	told := map[string]string{}
	for _, e := range m.Entries {
		told[e.ID] = e.Outcome
	}
	for id := range a.wholes() {
		if told[id] != "moved" {
			t.Errorf("%s on the good disk: %s, want moved", id, told[id])
		}
	}
	var lost []string
	for id, why := range m.lost() {
		lost = append(lost, id+": "+why)
	}
	if len(lost) != 1 || !strings.Contains(lost[0], frozen) || !strings.Contains(lost[0], "does not answer") {
		t.Errorf("got %q lost, want what lies in %s", lost, frozen)
	}
	b.onSocket().alone().serves(t, a.blocks)

	if err := disk.thaw(); err != nil {
		t.Fatal(err)
	}
	f.until(a.disk(frozen, "HEALTHY"))
}

// A drain waits half a minute for a disk that hangs, and shows that. The disk answers in time, and all its blocks are
// moved.
func TestDrainWaitsForADiskThatHangs(t *testing.T) {
	disk := mountImage(t, "ext4")
	f := newFleet(t)
	slow := disk.dir + "/cache"
	a, b := f.agent("host-a"), f.agent("host-b", probeEvery)
	a.reconfigure(probeEvery, fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, paths: [%s]}]", slow))
	if err := os.Mkdir(slow, 0o755); err != nil {
		t.Fatal(err)
	}
	a.blocks = sick{dir: slow}.fill(t)
	f.up()
	f.until(a.disk(slow, "HEALTHY"))
	disk.freeze()
	f.until(a.disk(slow, "IO_HANG"))
	a.verb("decommission", "--self", "--timeout", drainLead.String(), "--reason", "a disk that hangs").exits(0)
	awaits := "disk " + slow + " (does not answer)"
	f.until(func() error {
		if v := a.seen(); !slices.Contains(v.WaitsFor, awaits) {
			return fmt.Errorf("the coordinator says that the node waits for %q", v.WaitsFor)
		}
		return nil
	})
	a.verb("status").exits(0).tells(awaits)
	if err := disk.thaw(); err != nil {
		t.Fatal(err)
	}
	f.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	b.onSocket().alone().serves(t, a.blocks)
}

// An operator has one disk emptied while its node stays. The disk stays closed over a restart of the agent.
func TestOperatorEvacuatesADisk(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a", probeEvery)
	f.agent("host-b", probeEvery)
	a.fill(10, 64<<10)
	a.shuffle(2, 64<<10)
	f.up()

	a.verb("disk", "evacuate", "/elsewhere").exits(3)
	a.verb("disk", "evacuate", a.cache(), "--wait").exits(0).tells("done", "10/10")
	f.until(func() error {
		if held := f.held(); len(held) != 10 {
			return fmt.Errorf("peers hold %d blocks, want the 10 of that disk", len(held))
		}
		return nil
	})
	if v := a.seen(); v.State != "ACTIVE" || !v.Schedulable || v.Notice != nil {
		t.Errorf("the node should stay: got %+v", v)
	}
	a.kill()
	a.start()
	f.until(func() error {
		s := a.verb("disks", "-o", "json")
		if s.code != 0 {
			return errors.New(s.stderr)
		}
		for _, d := range decode[[]diskView](s) {
			if d.Closed != (d.Path == a.cache()) {
				return fmt.Errorf("after a restart: got %+v", d)
			}
		}
		return nil
	})
	a.verb("status").exits(0).tells("EVACUATION", "operator")
	a.verb("disk", "evacuate", a.cache(), "--cancel").exits(0)
	a.verb("disk", "evacuate", a.cache(), "--cancel").exits(3)
}

// image is a small file system on a loop device.
type image struct {
	t               *testing.T
	fs, dir, device string
	eject           func() // unmounts the file system, which nobody uses any more, and detaches the device
}

// mountImage makes and mounts an image, and undoes both when the test ends.
func mountImage(t *testing.T, fs string, mkfs ...string) *image {
	t.Helper()
	mounts(t, fs)
	file := filepath.Join(t.TempDir(), "image")
	size := int64(64 << 20)
	if fs == "xfs" {
		size = 320 << 20 // mkfs.xfs makes nothing below 300 MiB
	}
	makeImage(t, file, size, fs, mkfs...)
	return loop(t, file, fs, t.TempDir())
}

// mounts skips the test on a machine where it cannot make or mount a file system of that kind.
func mounts(t *testing.T, fs string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	for _, tool := range []string{"mkfs." + fs, "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// makeImage makes a file system in a file.
func makeImage(t *testing.T, file string, size int64, fs string, mkfs ...string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs."+fs, append(mkfs, "-q", file)...).CombinedOutput(); err != nil {
		t.Skipf("mkfs.%s: %v: %s", fs, err, out)
	}
}

// loop mounts an image file through a loop device, and skips the story where that cannot be done.
func loop(t *testing.T, file, fs, dir string) *image {
	t.Helper()
	i, err := tryLoop(t, file, fs, dir)
	if err != nil {
		t.Skip(err)
	}
	return i
}

func tryLoop(t *testing.T, file, fs, dir string) (*image, error) {
	i := &image{t: t, fs: fs, dir: dir}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("no loop device: %w: %s", err, out)
	}
	i.device = strings.TrimSpace(string(out))
	detach := sync.OnceFunc(func() { i.bounded("detach", exec.Command("losetup", "-d", i.device).Run) })
	t.Cleanup(detach)
	if err := i.mount(); err != nil {
		return nil, fmt.Errorf("mount %s: %w", fs, err)
	}
	var unmounted sync.Once
	t.Cleanup(func() {
		unmounted.Do(func() { i.bounded("unmount", func() error { return unix.Unmount(i.dir, unix.MNT_DETACH) }) })
	})
	i.eject = func() { unmounted.Do(func() { i.bounded("unmount", i.unmount) }); detach() }
	return i, nil
}

// unmount returns when the kernel has let go of the file system: until then XFS refuses to mount it again, and btrfs may mount what it
// still has in memory. A child of a process that was killed may have a file open for a moment more.
func (i *image) unmount() (err error) {
	for range 200 {
		if err = unix.Unmount(i.dir, 0); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.Join(err, unix.Unmount(i.dir, unix.MNT_DETACH))
}

func (i *image) mount() error { return unix.Mount(i.device, i.dir, i.fs, 0, "") }

// bounded gives up on work that hangs on a disk: no test may hang the machine.
func (i *image) bounded(what string, work func() error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		if err != nil {
			i.t.Errorf("%s %s: %v", what, i.device, err)
		}
	case <-time.After(30 * time.Second):
		i.t.Errorf("%s %s: gave up after 30s", what, i.device)
	}
}

// FIFREEZE and FITHAW of linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

func (i *image) freeze() {
	i.t.Helper()
	if err := i.ioctl(fiFreeze); err != nil {
		i.t.Skipf("freeze %s: %v", i.dir, err)
	}
	i.t.Cleanup(func() { // before all other cleanups: a process that hangs on the disk cannot be killed
		i.bounded("thaw", func() error {
			_ = i.thaw() // the test may have done so
			return nil
		})
	})
}

func (i *image) thaw() error { return i.ioctl(fiThaw) }

func (i *image) ioctl(what uint) error {
	f, err := os.Open(i.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), what, 0)
}

// fillUp writes until the disk is full.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(b)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill %s: %v", path, err)
	}
}
