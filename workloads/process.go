package workloads

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// procfs is where proc(5) is mounted; empty: /proc. Only the processes that it shows can be seen; a process of a container
// has its number on this host there, not the one inside the container.
type procfs string

func (p procfs) path(pid int, name string) string {
	return filepath.Join(cmp.Or(string(p), "/proc"), strconv.Itoa(pid), name)
}

// process is what the kernel says of one process at one moment.
type process struct {
	pid     int
	comm    string
	state   byte
	parent  int
	kernel  bool   // a thread of the kernel
	started uint64 // in ticks since boot: with the pid it names the process, as the pid alone does not
	uid     uint32 // effective
	ignored uint64 // signals, the lowest bit is signal 1
	caught  uint64
}

// ticksASecond is the unit of times in /proc, USER_HZ: 100 on every machine that Go runs Linux on.
const ticksASecond = 100

// isKernelThread is PF_KTHREAD of the kernel's include/linux/sched.h, in the flags of /proc/PID/stat.
const isKernelThread = 0x00200000

func (p process) String() string { return fmt.Sprintf("%s (pid %d)", p.comm, p.pid) }

// startedAt is the wall clock's time at which the process started, if the clock was not set since.
func (p process) startedAt() (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, fmt.Errorf("read the time since boot: %w", err)
	}
	age := time.Duration(now.Nano()) - time.Duration(p.started)*(time.Second/ticksASecond)
	return time.Now().Add(-age), nil
}

func (p process) catches(s syscall.Signal) bool { return p.caught&(1<<(s-1)) != 0 }
func (p process) ignores(s syscall.Signal) bool { return p.ignored&(1<<(s-1)) != 0 }

// errGone says that there is no such process, or none any more.
var errGone = errors.New("there is no such process")

// read looks at a process. A process that has ended and waits to be reaped counts as gone.
func (p procfs) read(pid int) (process, error) {
	stat, err := os.ReadFile(p.path(pid, "stat"))
	if err == nil {
		var status []byte
		if status, err = os.ReadFile(p.path(pid, "status")); err == nil {
			return parseProcess(stat, status)
		}
	}
	// The files of a process that ends while it is read answer ESRCH.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return process{}, errGone
	}
	return process{}, fmt.Errorf("look at process %d: %w", pid, err)
}

// parseProcess takes /proc/PID/stat and /proc/PID/status apart; see proc_pid_stat(5) and proc_pid_status(5).
func parseProcess(stat, status []byte) (process, error) {
	// The name is in parentheses and may hold any byte, parentheses too, so the fields are counted from the last one.
	open, closing := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || closing < open {
		return process{}, fmt.Errorf("/proc/PID/stat is not as proc_pid_stat(5) has it: %.80q", stat)
	}
	const first = 3 // of the fields behind the name: the state
	const parentAt, flagsAt, startedAt = 4 - first, 9 - first, 22 - first
	fields := strings.Fields(string(stat[closing+1:]))
	if len(fields) <= startedAt {
		return process{}, fmt.Errorf("/proc/PID/stat is not as proc_pid_stat(5) has it: %.80q", stat)
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	parent, err2 := strconv.Atoi(fields[parentAt])
	flags, err3 := strconv.ParseUint(fields[flagsAt], 10, 64)
	started, err4 := strconv.ParseUint(fields[startedAt], 10, 64)
	p := process{
		pid: pid, comm: printable(string(stat[open+1 : closing])), state: fields[0][0],
		parent: parent, kernel: flags&isKernelThread != 0, started: started,
	}
	errs := []error{err1, err2, err3, err4}
	found := 0
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		values := strings.Fields(value)
		var err error
		switch {
		case len(values) == 0:
			continue
		case key == "Uid" && len(values) == 4: // real, effective, saved, of the filesystem
			var uid uint64
			uid, err = strconv.ParseUint(values[1], 10, 32)
			p.uid = uint32(uid)
		case key == "SigIgn":
			p.ignored, err = strconv.ParseUint(values[0], 16, 64)
		case key == "SigCgt":
			p.caught, err = strconv.ParseUint(values[0], 16, 64)
		default:
			continue
		}
		found++
		errs = append(errs, err)
	}
	if found != 3 { // without the masks it would look like a process that catches nothing
		errs = append(errs, errors.New("/proc/PID/status lacks Uid, SigIgn or SigCgt"))
	}
	if err := errors.Join(errs...); err != nil {
		return process{}, err
	}
	if p.state == 'Z' || p.state == 'X' {
		return process{}, errGone
	}
	return p, nil
}

// commandLine is the process's arguments with blanks between them, or empty when it has none or is gone.
func (p procfs) commandLine(pid int) string {
	b, err := os.ReadFile(p.path(pid, "cmdline"))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " ")
}

// pids lists all processes.
func (p procfs) pids() ([]int, error) {
	dir, err := os.Open(cmp.Or(string(p), "/proc"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hidden reports whether this process cannot see those of other users (ProtectProc= of systemd.exec(5), hidepid= of
// proc(5)). Then a process that is not found may still be there. Process 1, by which it is tested, belongs to another user
// on every host.
func (p procfs) hidden() bool {
	_, err := os.Stat(p.path(1, "stat"))
	return err != nil
}

// spared says why a process is never signalled; nil: it may be.
func (p process) spared() error {
	switch {
	case p.pid == 1:
		return fmt.Errorf("%s is the first process, which is never signalled", p)
	case p.pid == os.Getpid():
		return fmt.Errorf("%s is this very process", p)
	case p.kernel:
		return fmt.Errorf("%s is a thread of the kernel", p)
	}
	return nil
}

// printable keeps the names of other programs from breaking a line of the log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
