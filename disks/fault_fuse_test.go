package disks

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/disks/sickfs"
)

// mountSick mounts a file system that can be given an ailment, and heals it before it is unmounted.
func mountSick(t *testing.T) (dir string, s *sickfs.FS) {
	t.Helper()
	mayMount(t)
	dir, s = t.TempDir(), new(sickfs.FS)
	s.Mount(t, dir)
	return dir, s
}

// All ailments at once, on one monitor: each disk shows its own fault and not its neighbour's.
func TestSickFileSystems(t *testing.T) {
	t.Parallel()
	faults := map[sickfs.Ailment]struct {
		health Health
		why    string
	}{
		sickfs.Well:     {Healthy, ""},
		sickfs.Hangs:    {IOHang, "it hangs at the step"},
		sickfs.Errs:     {ReadWriteFailure, "write a probe at DIR: input/output error"},
		sickfs.SyncErrs: {ReadWriteFailure, "sync a probe at DIR: input/output error"},
		sickfs.Slow:     {Slow, "most of the last probes took"},
		sickfs.Lies:     {ReadWriteFailure, "read back a probe at DIR: byte 0 is not what was written and synced"},
		sickfs.Flips:    {ReadWriteFailure, "read back a probe at DIR: byte 100 is not what was written and synced"},
		sickfs.SizeErrs: {Critical, "ask for the space at DIR: input/output error"},
	}
	disks, dirs := map[sickfs.Ailment]*sickfs.FS{}, []string{}
	dirOf := map[sickfs.Ailment]string{}
	for ill := range faults {
		dir, s := mountSick(t)
		disks[ill], dirOf[ill] = s, dir
		dirs = append(dirs, dir)
	}
	m := watchReal(t, dirs...)
	for _, dir := range dirs {
		m.await(t, dir, Healthy, "", 2*every)
	}
	for ill, s := range disks {
		s.Fall(ill)
	}
	// The test waits for one fault after the other, but they come together: all fit into the time for one.
	end := time.Now().Add(2*every + slack + 2*sickfs.Slowness)
	for ill, want := range faults {
		t.Log(ill)
		m.await(t, dirOf[ill], want.health, want.why, time.Until(end))
	}
	m.holdsNoMore(t)
	if d := m.disk(t, dirOf[sickfs.Well]); d.Health != Healthy {
		t.Errorf("the disk that is well: got %v %q", d.Health, d.Why)
	}
	for _, s := range disks {
		s.Heal()
	}
	for _, dir := range dirs {
		m.await(t, dir, Healthy, "", 8*every)
	}
}

// A file system whose server is gone returns errors at once; mounted again it is another one, and well.
func TestFileSystemWithoutItsServer(t *testing.T) {
	t.Parallel()
	dir, s := mountSick(t)
	m := watchReal(t, dir)
	m.await(t, dir, Healthy, "", 2*every)
	s.Fall(sickfs.Hangs)
	m.await(t, dir, IOHang, "", 2*every+slack)
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	m.await(t, dir, Missing, "nothing is mounted at DIR any more", 2*every+slack)
	new(sickfs.FS).Mount(t, dir)
	m.await(t, dir, Healthy, "", 8*every)
	// The kernel does not let go of a request that the old server took. The probe counts as stuck until it ends.
	if n := m.Stuck(); n != 1 {
		t.Errorf("%d probes are stuck, want the one on the old mount", n)
	}
	s.Heal()
	tick := time.NewTicker(every / 10)
	defer tick.Stop()
	patience := time.NewTimer(2*every + grace)
	defer patience.Stop()
	for m.Stuck() > 0 {
		select {
		case <-tick.C:
		case <-patience.C:
			t.Fatal("the probe on the old mount is still counted")
		}
	}
}

// keeper is a file system that removes nothing, as a share may for this user.
type keeper struct{ sickfs.FS }

func (*keeper) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }

// A probe that could not be removed has a name that inventories pass over.
func TestNameOfAProbeThatStays(t *testing.T) {
	disk := new(keeper)
	disk.Heal()
	dir := fusedisk.New(t, func(*fs.LoopbackRoot) fs.InodeEmbedder { return disk })
	if a := perform(sysfsRoot, task{Dir: dir, Write: page}, func(string) {}); a.Health != ReadWriteFailure {
		t.Errorf("got %+v", a)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".tmp") {
		t.Errorf("got %v, %v", left, err)
	}
}
