package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Target says which processes are meant: a pidFile, a match or a mainProcess.
type Target interface {
	// find returns the processes as they are now. If there are none it returns an error.
	find(ctx context.Context, proc procfs) ([]process, error)
	String() string
}

// nobody makes the error of a target that certainly does not exist.
func nobody(format string, args ...any) error { return &nobodyError{fmt.Sprintf(format, args...)} }

type nobodyError struct{ text string }

func (e *nobodyError) Error() string { return e.text }

// isNobody reports whether an error says that a target certainly does not exist. After any other error that is not known.
func isNobody(err error) bool {
	_, ok := errors.AsType[*nobodyError](err)
	return ok || errors.Is(err, errGone) || errors.Is(err, fs.ErrNotExist)
}

// pidFile is the path of a file that holds the number of one process.
//
// Such files outlive their process, and Spark's lie in /tmp, where they outlive even a reboot. So a file counts only if it
// was written after the process with that number started. Anybody can write a number into a file, so it must also belong to
// that process's user or to a user who may signal the process anyway.
type pidFile string

func (f pidFile) String() string { return "the process of " + string(f) }

// pidFileSlack is how much later than its file a process may seem to have started: clocks have grains (10 ms for
// processes, as much for files), and a time server moves the wall clock a little at boot.
const pidFileSlack = 2 * time.Second

func (f pidFile) find(_ context.Context, proc procfs) ([]process, error) {
	file, err := os.OpenFile(string(f), os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a named pipe in its place must not block
	if err != nil {
		return nil, fmt.Errorf("read pid file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read pid file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read pid file: %s is no file", f)
	}
	const longest = 64 // a number, and perhaps more lines: PostgreSQL's file has seven
	text, err := io.ReadAll(io.LimitReader(file, longest))
	if err != nil {
		return nil, fmt.Errorf("read pid file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return nil, fmt.Errorf("pid file %s begins with %.20q, which is no process's number", f, line)
	}
	p, err := proc.read(pid)
	if err != nil {
		return nil, fmt.Errorf("pid file %s names %d: %w", f, pid, err)
	}
	started, err := p.startedAt()
	if err != nil {
		return nil, err
	}
	if started.Sub(info.ModTime()) > pidFileSlack {
		return nil, nobody("pid file %s is stale: it was written at %s, and %s started at %s; if only the clock was set meanwhile, touch it",
			f, info.ModTime().Format(time.DateTime), p, started.Format(time.DateTime))
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != p.uid && owner != 0 && int(owner) != os.Geteuid() {
		return nil, fmt.Errorf("pid file %s belongs to user %d, and %s to user %d", f, owner, p, p.uid)
	}
	return []process{p}, nil
}

// match means every process that fits all fields that are set. The first process, the kernel's threads, this process and the
// supervisors of hooks never fit.
type match struct {
	Comm    string         // the name as in /proc/PID/comm, whole; the kernel keeps 15 bytes of it, and so does this
	CmdLine *regexp.Regexp // found somewhere in the arguments, which have blanks between them
	User    string         // a name or a number; empty: any

	lines *arguments // shared by all looks; nil: each look has its own
}

// longestComm is TASK_COMM_LEN less the zero at its end, see proc_pid_comm(5).
const longestComm = 15

func (m match) String() string {
	var parts []string
	if m.Comm != "" {
		parts = append(parts, "named "+m.Comm)
	}
	if m.CmdLine != nil {
		parts = append(parts, fmt.Sprintf("matching %q", m.CmdLine))
	}
	if m.User != "" {
		parts = append(parts, "of user "+m.User)
	}
	return "processes " + strings.Join(parts, ", ")
}

func (m match) find(ctx context.Context, proc procfs) ([]process, error) {
	if m.Comm == "" && m.CmdLine == nil {
		return nil, errors.New("match: neither a name nor a pattern: it would mean every process")
	}
	uid, err := m.uid()
	if err != nil {
		return nil, err
	}
	pids, err := proc.pids()
	if err != nil {
		return nil, err
	}
	lines := cmp.Or(m.lines, new(arguments))
	var found, unread []process
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := proc.read(pid)
		if err != nil || p.spared() != nil {
			continue // it has ended since, or is hidden from this process: it cannot be told
		}
		switch {
		case m.Comm != "" && p.comm != m.Comm[:min(len(m.Comm), longestComm)]:
		case uid >= 0 && int(p.uid) != uid:
		case m.CmdLine == nil:
			found = append(found, p)
		default:
			switch line, read := lines.of(proc, p); {
			case !read:
				unread = append(unread, p)
			case m.fits(line):
				found = append(found, p)
			}
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(unread) > 0:
		return nil, fmt.Errorf("there are no %s, but for what cannot be told: the kernel lets nobody read the arguments of %s, which hangs", m, unread[0])
	}
	return nil, nobody("there are no %s", m)
}

// fits reports whether the pattern is found in a command line. A supervisor's never fits, since it holds the name of the
// program that its hook runs.
func (m match) fits(line string) bool {
	words := strings.Fields(line)
	return m.CmdLine.MatchString(line) && (len(words) < 2 || words[1] != SupervisorArg)
}

// uid is the number of the user, or -1 for any.
func (m match) uid() (int, error) {
	if m.User == "" {
		return -1, nil
	}
	if uid, err := strconv.Atoi(m.User); err == nil {
		return uid, nil
	}
	u, err := user.Lookup(m.User)
	if err != nil {
		return 0, fmt.Errorf("match: %w", err)
	}
	return strconv.Atoi(u.Uid)
}

// mainProcess is the process that the service manager regards as a unit's main one.
type mainProcess struct {
	Unit string
	PID  func(ctx context.Context, unit string) (int, error) // 0: the unit has none now
}

func (m mainProcess) String() string { return "the main process of " + m.Unit }

func (m mainProcess) find(ctx context.Context, proc procfs) ([]process, error) {
	pid, err := m.PID(ctx, m.Unit)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", m, err)
	}
	if pid == 0 {
		return nil, nobody("%s has no main process", cmp.Or(m.Unit, "the unit"))
	}
	p, err := proc.read(pid)
	if err != nil {
		return nil, fmt.Errorf("%s is %d: %w", m, pid, err)
	}
	return []process{p}, nil
}
