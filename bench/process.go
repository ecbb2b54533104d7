package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is a process that runs during a measurement.
type daemon struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed once the process has ended and was waited for
	err   error         // valid after ended
}

// start starts a program whose output goes to the file log. The process dies with this one: if it stayed, it would answer
// in place of the next run's.
func start(ctx context.Context, log, program string, args ...string) (*daemon, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &daemon{cmd: exec.CommandContext(ctx, program, args...), log: log, ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = f, f
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = 10 * time.Second
	if err := begin(d.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(d.ended)
		d.err = d.cmd.Wait()
	}()
	return d, nil
}

// timerSlack is the timer slack that an agent's unit sets (systemd/units/lifeboat-agent.service, which says why).
const timerSlack = 200 * time.Microsecond

// begin starts a program with the timer slack that the agent's unit sets, whichever contender it is: a child inherits the
// slack of the thread that starts it (PR_SET_TIMERSLACK(2const)).
func begin(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("ask for the timer slack: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0) // back to what it was, which may always be set
	return cmd.Start()
}

// stop ends the process, and returns the CPU time of the process and of those children that it has waited for.
func (d *daemon) stop() (time.Duration, error) {
	d.childless()
	err := d.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-d.ended:
	case <-time.After(15 * time.Second):
		d.cmd.Process.Kill()
		<-d.ended
		err = errors.Join(err, d.trouble(errors.New("did not end when told to")))
	}
	return d.cmd.ProcessState.UserTime() + d.cmd.ProcessState.SystemTime(), err
}

// childless waits until the process has waited for all its children, but at most 5 s: only then is their CPU time
// counted.
func (d *daemon) childless() {
	pid := d.cmd.Process.Pid
	for range 500 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil || len(bytes.TrimSpace(b)) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// trouble adds the end of the log to an error.
func (d *daemon) trouble(err error) error {
	b, _ := os.ReadFile(d.log)
	b = bytes.TrimSpace(b[max(0, len(b)-1000):])
	return fmt.Errorf("%s: %w; it said:\n%s", filepath.Base(d.cmd.Path), err, b)
}

// until calls ready until it returns true. It is an error if the process ends first, or half a minute passes.
func (d *daemon) until(ctx context.Context, what string, ready func() bool) error {
	return d.within(ctx, 30*time.Second, what, ready)
}

func (d *daemon) within(ctx context.Context, patience time.Duration, what string, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !ready() {
		select {
		case <-ctx.Done():
			return d.trouble(fmt.Errorf("wait until %s: %w", what, ctx.Err()))
		case <-d.ended:
			return d.trouble(fmt.Errorf("ended before %s: %v", what, d.err))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (d *daemon) listens(ctx context.Context, addr string) error {
	return d.until(ctx, "it listens on "+addr, func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// freePorts returns n loopback addresses that nothing listens on now.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// command runs a program to its end. It returns what the program printed, and the CPU time of it and its children.
func command(ctx context.Context, program string, args ...string) (stdout []byte, cpu time.Duration, err error) {
	var out bytes.Buffer
	cpu, err = commandTo(ctx, &out, program, args...)
	return out.Bytes(), cpu, err
}

func commandTo(ctx context.Context, stdout io.Writer, program string, args ...string) (cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err = begin(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	return cpu, err
}

// usage is what a process has used up to now.
type usage struct {
	cpu time.Duration // of the process and of those children that it has waited for
	rss int64         // peak, in bytes
}

// readUsage reads proc_pid_stat(5) and proc_pid_status(5).
func readUsage(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	if u.cpu, err = parseStat(string(stat)); err != nil {
		return u, err
	}
	u.rss, err = parseStatus(string(status))
	return u, err
}

// tick is USER_HZ, which is 100 on every architecture that Go runs on.
const tick = time.Second / 100

// parseStat adds up utime, stime, cutime and cstime, fields 14 to 17. The second field is the program's name, which may
// have blanks and parentheses in it.
func parseStat(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	const utime = 14 - 3 // fields begins with the third
	if end < 0 || len(fields) < utime+4 {
		return 0, fmt.Errorf("stat of a process: %q is too short", stat)
	}
	var ticks int64
	for _, f := range fields[utime : utime+4] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat of a process: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// parseStatus finds VmHWM. A process that has ended but was not waited for has none.
func parseStatus(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("status of a process: %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("status of a process: no VmHWM")
}

// gauge reads the usage of processes again and again: a process that has done its work may be gone when its figures are
// wanted.
type gauge struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex // guards last
	last map[int]usage
}

func follow(ctx context.Context, pids ...int) *gauge {
	ctx, stop := context.WithCancel(ctx)
	g := &gauge{stop: stop, last: map[int]usage{}}
	g.read(pids)
	g.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
				g.read(pids)
			}
		}
	})
	return g
}

func (g *gauge) read(pids []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pid := range pids {
		if u, err := readUsage(pid); err == nil {
			g.last[pid] = u
		}
	}
}

// now returns the usage of a process, or the last that was read if the process is gone.
func (g *gauge) now(pid int) usage {
	g.read([]int{pid})
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last[pid]
}

func (g *gauge) close() {
	g.stop()
	g.wg.Wait()
}
