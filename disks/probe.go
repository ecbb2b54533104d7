package disks

import (
	"bytes"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/shirou/gopsutil/v3/disk"
	"golang.org/x/sys/unix"
)

// task is one question to a disk.
type task struct {
	Dir   string
	Write int64  // bytes to write, sync and read back; 0: only look
	Whole string // the disk whose warnings to read; empty: none
}

// extent is the size of a file system and what is left of it, as a writer in some directory sees it: a quota on the
// directory's project shows here, too.
type extent struct {
	Total, Free        int64
	Inodes, InodesFree int64 // Inodes 0: not counted
}

// answer is what came of a task.
type answer struct {
	finding
	Lost   bool   // the prober was killed or died, or could not ask the disk: the answer says nothing
	Dir    string // without symbolic links; empty: not known
	Dev    number
	Room   extent
	Sized  bool // Room has been measured
	Wrote  time.Duration
	Read   time.Duration
	Direct bool // reads and writes went past the page cache
}

// The steps of a probe. Each is told before it begins, so that a hang can be named.
const (
	stepLook  = "look"
	stepSize  = "ask for the space"
	stepOpen  = "create"
	stepWrite = "write"
	stepSync  = "sync"
	stepRead  = "read back"
)

// perform does a task. It may hang as long as the disk does.
//
// The bytes are new each time. They go to a file without a name where the file system can make one, so nothing is left
// behind and no inventory sees it. They are read back past the page cache: by O_DIRECT, or where the file system does not
// take that, by dropping the cached pages after the sync, which the kernel may decline. A device that answers from a
// volatile cache of its own, and forgets at the next power cut, is not found out.
func perform(sys sysfs, t task, at func(step string)) answer {
	var a answer
	a.Health = Healthy
	at(stepLook)
	dir, err := filepath.EvalSymlinks(t.Dir)
	if err != nil {
		return a.failed(stepLook, t.Dir, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return a.failed(stepLook, t.Dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return a.failed(stepLook, t.Dir, unix.ENOTDIR)
	}
	a.Dir, a.Dev = dir, numberOf(st.Dev)

	at(stepSize)
	room, readOnly, err := measure(dir)
	if err != nil {
		if a = a.failed(stepSize, t.Dir, err); a.Health != Missing {
			a.Health = Critical // a file system that does not know its own size is beyond repair from here
		}
		return a
	}
	a.Room, a.Sized = room, true
	if t.Whole != "" {
		a.finding = sys.warning(hardware{whole: t.Whole})
	}
	if readOnly {
		a.finding = finding{ReadOnly, "mounted read-only"}
		return a
	}
	if t.Write > 0 {
		a.writeAndReadBack(t, at)
	}
	return a
}

// measure returns the size of the file system at dir, and whether it is mounted read-only.
func measure(dir string) (extent, bool, error) {
	u, err := disk.Usage(dir)
	if err != nil {
		return extent{}, false, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return extent{}, false, err
	}
	e := extentOf(u)
	if quota, ok := userQuota(dir, os.Geteuid()); ok {
		e = e.within(quota)
	}
	return e, fs.Flags&unix.ST_RDONLY != 0, nil
}

// mostSize bounds what a file system counts as: Amazon's EFS says that it has 8 EiB. The sizes of a node's disks are added up, of
// 256 at most, and a coordinator refuses a node whose sum has become negative.
const mostSize = math.MaxInt64 / 512

// extentOf reads the result of statfs.
func extentOf(u *disk.UsageStat) extent {
	e := extent{Total: int64(min(u.Total, mostSize))}
	// Free is what is available without privileges (f_bavail): the blocks kept for root are off already. A file system
	// that root has filled beyond that line may count below zero, which arrives as an enormous number.
	if u.Free <= math.MaxInt64 {
		e.Free = min(int64(u.Free), e.Total)
	}
	// CephFS returns the number of files, and that -1 can be made: it does not count inodes.
	if u.InodesTotal <= math.MaxInt64 && u.InodesFree <= u.InodesTotal {
		e.Inodes, e.InodesFree = int64(u.InodesTotal), int64(u.InodesFree)
	}
	return e
}

// within narrows an extent to a quota.
func (e extent) within(q extent) extent {
	if q.Total > 0 {
		e.Total, e.Free = min(e.Total, q.Total), min(e.Free, q.Free)
	}
	if q.Inodes > 0 {
		if e.Inodes == 0 || q.InodesFree < e.InodesFree {
			e.InodesFree = q.InodesFree
		}
		e.Inodes = q.Inodes
	}
	return e
}

func (a answer) failed(step, dir string, err error) answer {
	a.finding, a.Lost = faultOf(step+" at "+dir, err), shortage(err)
	return a
}

// shortage reports whether an error is this machine's, which is short of files or memory, or was interrupted: it says nothing of the
// disk.
func shortage(err error) bool { return is(err, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR) }

// faultOf turns an error of the kernel into a finding about the disk.
func faultOf(doing string, err error) finding {
	why := doing + ": " + reason(err)
	switch {
	case is(err, unix.ENOENT, unix.ENOTDIR, unix.ENODEV, unix.ENXIO, unix.ENOTCONN, unix.ESTALE):
		return finding{Missing, why}
	case is(err, unix.EROFS):
		return finding{ReadOnly, why}
	case is(err, unix.ENOSPC, unix.EDQUOT):
		return finding{HighUsage, why}
	}
	return finding{ReadWriteFailure, why}
}

func is(err error, any ...unix.Errno) bool {
	for _, e := range any {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reason returns the kernel's own words, without the path, which has been said already.
func reason(err error) string {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

func (a *answer) writeAndReadBack(t task, at func(string)) {
	fail := func(step string, err error) {
		a.finding, a.Lost = faultOf(step+" a probe at "+t.Dir, err), shortage(err)
	}
	at(stepOpen)
	fd, direct, err := openProbe(a.Dir)
	if err != nil {
		fail(stepOpen, err)
		return
	}
	defer unix.Close(fd) // nothing is written any more
	a.Direct = direct

	var seed [32]byte
	crand.Read(seed[:]) // never fails
	chunk := aligned(min(t.Write, chunkBytes))
	pattern := rand.NewChaCha8(seed)
	for off := int64(0); off < t.Write; off += int64(len(chunk)) {
		pattern.Read(chunk) // never fails
		at(stepWrite)
		start := time.Now()
		err := writeAt(fd, chunk, off, &a.Direct)
		a.Wrote += time.Since(start)
		if err != nil {
			fail(stepWrite, err)
			return
		}
	}
	at(stepSync)
	start := time.Now()
	err = again(func() error { return unix.Fsync(fd) })
	a.Wrote += time.Since(start)
	if err != nil {
		fail(stepSync, err)
		return
	}
	// This comes after direct writes, too: some file systems silently turn them into cached ones.
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		a.Direct = false
	}

	pattern = rand.NewChaCha8(seed)
	got := aligned(int64(len(chunk)))
	for off := int64(0); off < t.Write; off += int64(len(chunk)) {
		pattern.Read(chunk)
		at(stepRead)
		start := time.Now()
		n, err := readAt(fd, got, off)
		a.Read += time.Since(start)
		switch {
		case err != nil:
			fail(stepRead, err)
			return
		case n < len(got) || !bytes.Equal(got, chunk):
			a.finding = finding{ReadWriteFailure, fmt.Sprintf("read back a probe at %s: %s", t.Dir, difference(chunk, got[:n], off))}
			return
		}
	}
}

func difference(want, got []byte, off int64) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is not what was written and synced", off+int64(i))
		}
	}
	return fmt.Sprintf("only %d bytes are left of what was written and synced", off+int64(len(got)))
}

// A probe's name shows only on file systems that make no nameless files, and for a moment, or until somebody removes it where the
// file system hangs or errs just then. It ends as names of unfinished files do, which no drain carries.
const probePrefix, probeSuffix = ".lifeboat-probe-", ".tmp"

// openProbe makes a file without a name in dir, for direct I/O if the file system takes that.
func openProbe(dir string) (fd int, direct bool, err error) {
	const flags = unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW
	open := func(path string, how int) (int, bool, error) {
		fd, err := unix.Open(path, flags|how|unix.O_DIRECT, 0o600)
		if !is(err, unix.EINVAL) {
			return fd, true, err
		}
		fd, err = unix.Open(path, flags|how, 0o600)
		return fd, false, err
	}
	// ENOENT and EISDIR are the words of kernels and file systems that take the flag for a directory's (open(2), BUGS).
	fd, direct, err = open(dir, unix.O_TMPFILE)
	if !is(err, unix.EOPNOTSUPP, unix.EISDIR, unix.ENOENT, unix.EINVAL, unix.ENOSYS) {
		return fd, direct, err
	}
	path := filepath.Join(dir, probePrefix+crand.Text()+probeSuffix)
	fd, direct, err = open(path, unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return fd, direct, err
	}
	if err := unix.Unlink(path); err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, direct, nil
}

// chunkBytes bounds the memory that a probe takes.
const chunkBytes = 256 << 10

// page is the alignment that O_DIRECT needs. Devices with larger sectors need more, and get cached writes.
const page = 4096

func aligned(n int64) []byte {
	b := make([]byte, n+page)
	skip := -int64(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[skip : skip+n : skip+n]
}

func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeAt writes all of b. A file system that has opened a file for direct I/O may still refuse the write, which is
// then cached.
func writeAt(fd int, b []byte, off int64, direct *bool) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL) && *direct:
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
				return os.NewSyscallError("fcntl", err)
			}
			*direct = false
		case err != nil:
			return err
		case n == 0:
			return unix.EIO
		default:
			b, off = b[n:], off+int64(n)
		}
	}
	return nil
}

func readAt(fd int, b []byte, off int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Pread(fd, b[done:], off+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return done, err
		}
		done += n
	}
	return done, nil
}
