package disks

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// number is a device's number. Names say nothing: sdb is a prefix of sdba, and a mount's source may be any text.
type number struct {
	Major, Minor uint32
}

func (n number) String() string { return fmt.Sprintf("%d:%d", n.Major, n.Minor) }

func numberOf(dev uint64) number { return number{unix.Major(dev), unix.Minor(dev)} }

// anonymous reports whether the number is no block device's: network and memory file systems, FUSE and btrfs have such
// numbers.
func (n number) anonymous() bool { return n.Major == 0 }

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	id, parent int
	dev        number
	point      string
	fs         string
	source     string
}

// mounts are what is mounted, in the order in which it was mounted.
type mounts []mount

// at returns the mount that a path without symbolic links lies on, going the way the kernel goes: from the root across
// each mount point that it meets. The longest mount point that fits would be wrong where one mount hides another.
func (all mounts) at(path string) (mount, bool) {
	here, ok := all.top()
	if !ok {
		return mount{}, false
	}
	for {
		next := -1
		for i, m := range all {
			if m.parent == here.id && m.id != here.id && below(path, m.point) && len(m.point) >= len(here.point) &&
				(next < 0 || len(m.point) < len(all[next].point)) {
				next = i
			}
		}
		if next < 0 {
			return here, true
		}
		here = all[next]
	}
}

// top returns the mount at the root of this process's tree: the one whose parent cannot be seen from here.
func (all mounts) top() (mount, bool) {
	seen := make(map[int]bool, len(all))
	for _, m := range all {
		seen[m.id] = true
	}
	for _, m := range all {
		if m.point == "/" && (m.parent == m.id || !seen[m.parent]) {
			return m, true
		}
	}
	return mount{}, false
}

// below reports whether path is dir or lies in it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// readMounts parses mountinfo. gopsutil's Partitions gives no device number and no parent. It also reads the mounts of
// process 1, which in a container or under PrivateMounts are not ours.
func readMounts(r io.Reader) (mounts, error) {
	var all mounts
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay's options may be many pages long
	for lines.Scan() {
		m, err := parseMount(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("read mountinfo: line %d: %w", len(all)+1, err)
		}
		all = append(all, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	return all, nil
}

func parseMount(line string) (mount, error) {
	left, right, ok := strings.Cut(line, " - ")
	front, back := strings.Fields(left), strings.Fields(right)
	if !ok || len(front) < 6 || len(back) < 1 {
		return mount{}, fmt.Errorf("%q: too few fields", line)
	}
	id, err1 := strconv.Atoi(front[0])
	parent, err2 := strconv.Atoi(front[1])
	dev, err3 := parseNumber(front[2])
	if err := cmp.Or(err1, err2, err3); err != nil {
		return mount{}, fmt.Errorf("%q: %w", line, err)
	}
	m := mount{id: id, parent: parent, dev: dev, point: unescape(front[4]), fs: back[0]}
	if len(back) > 1 { // a mount may have an empty source
		m.source = unescape(back[1])
	}
	return m, nil
}

func parseNumber(s string) (number, error) {
	a, b, _ := strings.Cut(s, ":")
	major, err1 := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	return number{uint32(major), uint32(minor)}, cmp.Or(err1, err2)
}

// unescape undoes the kernel's octal escapes for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountTable follows what is mounted. It does not use os.File: the runtime's poller would take the kernel's event that
// something changed, and keep it.
type mountTable struct {
	fd int
}

func openMounts() (*mountTable, error) {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("follow mounts: open /proc/self/mountinfo: %w", err)
	}
	return &mountTable{fd}, nil
}

// changed reports whether something was mounted or unmounted since the last call; the kernel answers at once.
func (t *mountTable) changed() bool {
	fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

func (t *mountTable) read() (mounts, error) {
	if _, err := unix.Seek(t.fd, 0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	return readMounts(t)
}

func (t *mountTable) Read(b []byte) (int, error) {
	var n int
	err := again(func() (err error) { n, err = unix.Read(t.fd, b); return err })
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (t *mountTable) close() error { return unix.Close(t.fd) }
