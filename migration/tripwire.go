package migration

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tripwires tell in which directories no file was written since they were looked through, so that a drain that looks again need not
// look at each file: on a node at peace, with blocks of 4 KiB, that was an eighth of all that both ends had to do (measured). Names
// that come and go change the directory itself. For what is in the files the kernel lays a wire (inotify(7)): it breaks at the first
// write to one that has its name there, or when one is closed that was open for writing.
//
// It does not break when memory is written that a file is mapped to after it was closed, nor when the writer goes by another name of
// the file in another directory, nor when it writes from another machine. So wires are laid in file systems of this machine alone, and
// where no file has two names; and the looks after a drain is over (AnyLeft) go by none.
type tripwires struct {
	mu   sync.Mutex
	fd   int // of the kernel's queue; -1: no wires are laid
	most int
	at   map[site]*tripwire
	of   map[int32]*tripwire // those that are not broken, by what the kernel calls them
	own  map[uint64]bool     // by device: whether nobody else writes to it
	buf  [4 << 10]byte
}

// tripwire is what is known of a directory that was looked through.
type tripwire struct {
	at     site
	wd     int32
	broken bool
	laid   time.Time
	whole  bool     // what follows is known
	dir    dirID    // as it was then
	newest int64    // when one of its files last changed, at the latest; Unix nanoseconds
	dirs   []string // in it
	// passed says that a look passed by. The next one that does not goes by no times in this directory: a write that takes long has that
	// of its beginning, and breaks the wire at its end.
	passed bool
}

// breaks is what breaks a wire, and takes it away. IN_MASK_CREATE has a wire that is about to be taken away not count as a new one.
const breaks = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_ONESHOT | unix.IN_ONLYDIR | unix.IN_MASK_CREATE

// mostTripwires bounds the wires: each holds an inode in the kernel's memory, 1 KiB or so. A user's are counted together, root's are
// systemd's too, and before Linux 5.11 there were 8,192: no more than one in eight is taken.
const mostTripwires = 4096

func newTripwires() *tripwires { return &tripwires{fd: -1} }

// open has wires be laid from now on, if the machine allows it.
func (t *tripwires) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return
	}
	all, _ := strconv.Atoi(strings.TrimSpace(string(limit)))
	t.most, t.at, t.of, t.own = min(all/8, mostTripwires), map[site]*tripwire{}, map[int32]*tripwire{}, map[uint64]bool{}
	if t.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		t.fd = -1
	}
}

// close takes all of them away.
func (t *tripwires) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
	t.fd, t.at, t.of = -1, nil, nil
}

// lay lays one in a directory that is open and about to be looked through; nil if there can be none.
func (t *tripwires) lay(fd int, at site) *tripwire {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.at[at]
	if t.fd < 0 || was == nil && len(t.at) >= t.most || !t.isOwn(fd, at.dev) {
		return nil
	}
	wire := &tripwire{at: at, laid: time.Now()}
	if was != nil {
		wire.passed = was.passed
		t.take(was)
	}
	t.at[at] = wire
	wd, err := unix.InotifyAddWatch(t.fd, "/proc/self/fd/"+strconv.Itoa(fd), breaks)
	if err != nil { // there are too many, or it is a directory of two stores
		t.snap(wire)
		return nil
	}
	wire.wd = int32(wd)
	t.of[wire.wd] = wire
	return wire
}

// isOwn reports whether an open directory's file system is one that only this machine writes to.
func (t *tripwires) isOwn(fd int, dev uint64) bool {
	own, known := t.own[dev]
	if !known {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			switch st.Type {
			case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
				own = true
			}
		}
		t.own[dev] = own
	}
	return own
}

// keep notes what was in a directory when it was looked through after a wire was laid. Only what is settled by then would be seen to change.
func (t *tripwires) keep(wire *tripwire, dir dirID, newest int64, dirs []string) {
	if wire == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wire.whole, wire.passed = dir.settled(wire.laid), false
	wire.dir, wire.newest, wire.dirs = dir, newest, dirs
}

// lift takes a wire away from a directory that was looked through and has what no wire tells of.
func (t *tripwires) lift(wire *tripwire) {
	if wire == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wire.passed = false
	t.take(wire)
}

// take takes a wire out of the kernel's hands, unless it is broken.
func (t *tripwires) take(wire *tripwire) {
	if !wire.broken && t.fd >= 0 {
		_, _ = unix.InotifyRmWatch(t.fd, uint32(wire.wd)) // it may have broken in this moment
	}
	t.snap(wire)
}

// snap notes that a wire is broken. There is nothing to remember of one that no look went by.
func (t *tripwires) snap(wire *tripwire) {
	wire.broken = true
	delete(t.of, wire.wd)
	if !wire.passed && t.at[wire.at] == wire {
		delete(t.at, wire.at)
	}
}

// passBy reports whether nothing has changed in a directory since, and returns those in it. Where something may have, anew says that a look
// before passed by.
func (t *tripwires) passBy(at site, dir dirID, since int64) (dirs []string, passed, anew bool) {
	if t == nil {
		return nil, false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wire := t.at[at]
	if wire == nil {
		return nil, false, false
	}
	if t.hear(); wire.broken || !wire.whole || wire.dir != dir || wire.newest >= since {
		return nil, false, wire.passed
	}
	wire.passed = true
	return wire.dirs, true, false
}

// hear takes note of the wires that broke: of all, where the kernel has lost count.
func (t *tripwires) hear() {
	for {
		n, err := again(func() (int, error) { return unix.Read(t.fd, t.buf[:]) })
		if err == unix.EAGAIN {
			return
		}
		lost := err != nil || n <= 0
		for events := t.buf[:max(n, 0)]; len(events) > 0; { // struct inotify_event: wd, mask, cookie, length of the name; the name
			wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			events = events[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(events[12:]):]
			lost = lost || mask&unix.IN_Q_OVERFLOW != 0
			if wire := t.of[wd]; wire != nil {
				t.snap(wire)
			}
		}
		if lost {
			for _, wire := range t.of {
				t.take(wire)
			}
			return
		}
	}
}
