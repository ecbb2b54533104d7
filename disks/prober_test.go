package disks

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestProbingProcessIsStartedAgain(t *testing.T) {
	c := &child{command: []string{os.Args[0], serveVerb}}
	defer c.end()
	dir := t.TempDir()
	var steps []string
	ask := func() answer {
		return c.probe(task{Dir: dir, Write: probeBytes}, func(step string) { steps = append(steps, step) })
	}
	a := ask()
	if a.Health != Healthy || a.Lost || a.Dir == "" || a.Room.Total == 0 || a.Wrote <= 0 || a.Read <= 0 {
		t.Fatalf("got %+v", a)
	}
	if got := strings.Join(steps, ", "); got != "look, ask for the space, create, write, sync, read back" {
		t.Errorf("steps: got %s", got)
	}
	first := c.cmd.Process.Pid
	c.kill()
	if a := ask(); !a.Lost {
		t.Errorf("killed: got %+v", a)
	}
	if a := ask(); a.Lost || a.Health != Healthy || c.cmd.Process.Pid == first {
		t.Errorf("started again: got %+v", a)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestProbingProcessThatCannotBeStarted(t *testing.T) {
	for _, command := range [][]string{{filepath.Join(t.TempDir(), "none")}, {"/bin/true"}, {"/bin/echo", "{}"}, {"/bin/echo", "hello"}} {
		c := &child{command: command}
		if a := c.probe(task{Dir: "/"}, func(string) {}); !a.Lost || a.Why == "" {
			t.Errorf("%v: got %+v", command, a)
		}
		c.end()
	}
}

// A machine that is short of files or memory says nothing of its disks: otherwise all of them would be given up at
// once.
func TestShortageOfTheMachineIsNoFaultOfADisk(t *testing.T) {
	dir := t.TempDir()
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	a := perform(sysfsRoot, task{Dir: dir, Write: probeBytes}, func(string) {})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if !a.Lost || !strings.Contains(a.Why, "create a probe at "+dir+": too many open files") {
		t.Errorf("got %+v", a)
	}
	for err, lost := range map[error]bool{unix.ENOMEM: true, unix.ENFILE: true, unix.EINTR: true, unix.EIO: false, unix.EROFS: false, unix.ENOENT: false} {
		if got := (answer{}).failed(stepSize, dir, err); got.Lost != lost {
			t.Errorf("%v: got %+v", err, got)
		}
	}
}

func TestServeProbes(t *testing.T) {
	var out bytes.Buffer
	if err := ServeProbes(strings.NewReader(""), &out); err != nil {
		t.Errorf("nothing is asked: got %v", err)
	}
	if err := ServeProbes(strings.NewReader("what?"), &out); err == nil {
		t.Error("garbage was understood")
	}
}

// Small and large files, and file systems that make no nameless files or take no direct I/O.
func TestProbeByEveryWay(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		for _, bytes := range []int64{page, chunkBytes, 4 << 20} {
			a := perform(sysfsRoot, task{Dir: dir, Write: bytes}, func(string) {})
			if a.Health != Healthy || !a.Sized {
				t.Errorf("%s, %d bytes: got %+v", dir, bytes, a)
			}
			t.Logf("%s: %d bytes, direct %v, wrote in %v, read in %v", dir, bytes, a.Direct, a.Wrote, a.Read)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a := perform(sysfsRoot, task{Dir: file}, func(string) {}); a.Health != Missing {
		t.Errorf("a file: got %+v", a)
	}
	if a := perform(sysfsRoot, task{Dir: "/proc", Write: page}, func(string) {}); a.Health.Writable() {
		t.Errorf("a file system that takes nothing: got %+v", a)
	}
}

// Calls of quotactl_fd(2), for a user and for a project.
const (
	setUserQuota    = 0x800008 << 8
	setProjectQuota = 0x800008<<8 | 2
	fsSetXattr      = 0x401C5820 // FS_IOC_FSSETXATTR
	projectInherit  = 0x200      // FS_XFLAG_PROJINHERIT
	quotaOfBlocks   = 1          // QIF_BLIMITS
	quotaOfInodes   = 4          // QIF_ILIMITS
)

func TestQuotasOfTheKernel(t *testing.T) {
	t.Parallel()
	mayMount(t)
	i := mountImage(t, "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:prjquota")
	fd, err := unix.Open(i.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const who = 4711
	set := func(command uintptr, id int, q quota) {
		t.Helper()
		if err := quotactl(fd, command, id, &q); err != nil {
			t.Skipf("no quotas here: %v", err)
		}
	}
	set(setUserQuota, who, quota{blockHard: 8 << 10, inodeHard: 10, valid: quotaOfBlocks | quotaOfInodes})
	if e, ok := userQuota(i.dir, who); !ok || e != (extent{8 << 20, 8 << 20, 10, 10}) {
		t.Errorf("a user's quota: got %+v, %v", e, ok)
	}
	if e, ok := userQuota(i.dir, who+1); ok && e != (extent{}) {
		t.Errorf("a user without: got %+v", e)
	}

	store := filepath.Join(i.dir, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := setProject(store, who); err != nil {
		t.Skipf("no projects here: %v", err)
	}
	set(setProjectQuota, who, quota{blockHard: 16 << 10, valid: quotaOfBlocks})
	a := perform(sysfsRoot, task{Dir: store, Write: page}, func(string) {})
	if a.Health != Healthy || a.Room.Total != 16<<20 || a.Room.Free > 16<<20 {
		t.Errorf("a project's quota: got %+v", a)
	}
	if whole := perform(sysfsRoot, task{Dir: i.dir}, func(string) {}); whole.Room.Total <= 16<<20 {
		t.Errorf("outside of it: got %+v", whole)
	}
}

func setProject(dir string, id uint32) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	attr := struct {
		flags, extent, extents, project, cow uint32
		_                                    [8]byte
	}{flags: projectInherit, project: id}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsSetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		return errno
	}
	return nil
}
