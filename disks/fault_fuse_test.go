package disks

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// sickFS is a file system in memory that has the ailment that it is given.
type sickFS struct {
	fs.Inode
	ailment atomic.Value // a string
	hold    atomic.Pointer[chan struct{}]
}

const (
	well   = ""
	hangs  = "hangs"
	errs   = "errors"
	slow   = "slow"
	lies   = "lies about sync"
	flips  = "flips a bit"
	sizeIO = "cannot tell its size"
	noSync = "errors at sync"
)

func (s *sickFS) fall(ill string) {
	if ill == hangs {
		hold := make(chan struct{})
		s.hold.Store(&hold)
	}
	s.ailment.Store(ill)
}

func (s *sickFS) heal() {
	s.ailment.Store(well)
	if hold := s.hold.Swap(nil); hold != nil {
		close(*hold)
	}
}

// suffer is called where data moves.
func (s *sickFS) suffer() syscall.Errno {
	switch s.ailment.Load() {
	case hangs:
		if hold := s.hold.Load(); hold != nil {
			<-*hold
		}
	case errs:
		return syscall.EIO
	}
	return 0
}

func (s *sickFS) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	if s.ailment.Load() == sizeIO {
		return syscall.EIO
	}
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<20, 1<<19, 1<<19
	return 0
}

func (s *sickFS) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	f := &sickFile{sick: s}
	return s.NewInode(ctx, f, fs.StableAttr{Mode: mode}), nil, 0, 0
}

func (s *sickFS) Unlink(context.Context, string) syscall.Errno { return 0 }

type sickFile struct {
	fs.Inode
	sick *sickFS

	mu   sync.Mutex // guards what follows
	data []byte
}

func (f *sickFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, 0
}

func (f *sickFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(f.data))
	return 0
}

func (f *sickFile) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := in.GetSize(); ok {
		f.data = append(f.data, make([]byte, max(0, int(n)-len(f.data)))...)[:n]
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(f.data))
	return 0
}

func (f *sickFile) Write(_ context.Context, _ fs.FileHandle, b []byte, off int64) (uint32, syscall.Errno) {
	if e := f.sick.suffer(); e != 0 {
		return 0, e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := int(off) + len(b); end > len(f.data) {
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	copy(f.data[off:], b)
	return uint32(len(b)), 0
}

// slowness is longer than the tests allow a probe before they call it slow.
const slowness = 200 * time.Millisecond

func (f *sickFile) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	if e := f.sick.suffer(); e != 0 {
		return e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.sick.ailment.Load() {
	case slow:
		timer := time.NewTimer(slowness)
		defer timer.Stop()
		<-timer.C
	case lies:
		clear(f.data)
	case noSync:
		return syscall.EIO
	}
	return 0
}

func (f *sickFile) Read(_ context.Context, _ fs.FileHandle, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if e := f.sick.suffer(); e != 0 {
		return nil, e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	if off < int64(len(f.data)) {
		n = copy(b, f.data[off:])
	}
	if f.sick.ailment.Load() == flips && n > 100 {
		b[100] ^= 4
	}
	return fuse.ReadResultData(b[:n]), 0
}

// mountSick mounts a sick file system, and heals it before it goes.
func mountSick(t *testing.T) (dir string, s *sickFS) {
	t.Helper()
	mayMount(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	dir, s = t.TempDir(), new(sickFS)
	s.mount(t, dir)
	return dir, s
}

func (s *sickFS) mount(t *testing.T, dir string) {
	t.Helper()
	s.ailment.Store(well)
	server, err := fs.Mount(dir, s, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "sick", Name: "sick"}})
	if err != nil {
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.heal()
		unix.Unmount(dir, unix.MNT_DETACH) // the test may have done so
		bounded(t, "the end of the FUSE server", server.Wait, func() {
			abort := fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", unix.Minor(st.Dev))
			if err := os.WriteFile(abort, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		})
	})
}

// All at once, on one monitor: each disk has its own fault and none its neighbour's.
func TestSickFileSystems(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		health Health
		why    string
	}{
		well:   {Healthy, ""},
		hangs:  {IOHang, "it hangs at the step"},
		errs:   {ReadWriteFailure, "write a probe at DIR: input/output error"},
		noSync: {ReadWriteFailure, "sync a probe at DIR: input/output error"},
		slow:   {Slow, "most of the last probes took"},
		lies:   {ReadWriteFailure, "read back a probe at DIR: byte 0 is not what was written and synced"},
		flips:  {ReadWriteFailure, "read back a probe at DIR: byte 100 is not what was written and synced"},
		sizeIO: {Critical, "ask for the space at DIR: input/output error"},
	}
	disks, dirs := map[string]*sickFS{}, []string{}
	dirOf := map[string]string{}
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
		s.fall(ill)
	}
	// The waits are one after the other, the faults are not: all of them fit into the time for one.
	end := time.Now().Add(2*every + slack + 2*slowness)
	for ill, want := range faults {
		t.Log(ill)
		m.await(t, dirOf[ill], want.health, want.why, time.Until(end))
	}
	m.holdsNoMore(t)
	if d := m.disk(t, dirOf[well]); d.Health != Healthy {
		t.Errorf("the disk that is well: got %v %q", d.Health, d.Why)
	}
	for _, s := range disks {
		s.heal()
	}
	for _, dir := range dirs {
		m.await(t, dir, Healthy, "", 8*every)
	}
}

// A file system whose server is gone says so at once; mounted anew it is another one, and well.
func TestFileSystemWithoutItsServer(t *testing.T) {
	t.Parallel()
	dir, s := mountSick(t)
	m := watchReal(t, dir)
	m.await(t, dir, Healthy, "", 2*every)
	s.fall(hangs)
	m.await(t, dir, IOHang, "", 2*every+slack)
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	m.await(t, dir, Missing, "nothing is mounted at DIR any more", 2*every+slack)
	new(sickFS).mount(t, dir)
	m.await(t, dir, Healthy, "", 8*every)
	// The kernel does not let go of a request that the old server took. It is counted until it ends.
	if n := m.Stuck(); n != 1 {
		t.Errorf("%d probes are stuck, want the one on the old mount", n)
	}
	s.heal()
	tick := time.NewTicker(every / 10)
	defer tick.Stop()
	for n := 0; m.Stuck() > 0; n++ {
		if n == 20 {
			t.Fatal("the probe on the old mount is still counted")
		}
		<-tick.C
	}
}
