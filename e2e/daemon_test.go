package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// daemon is a process that is expected to live until the test ends it.
type daemon struct {
	t    *testing.T
	name string
	args []string
	env  []string // besides what all have
	log  string   // file that all its lives write to

	cmd   *exec.Cmd     // nil: not running
	ended chan struct{} // closed when cmd has been waited for
}

// ownGroup puts a process into a group of its own, which can be killed whole, and has the kernel kill it when a test
// binary that panicked or timed out leaves it behind.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// launch starts a command in a group of its own, which is killed when the test ends.
func launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
	})
}

func (d *daemon) start() {
	d.t.Helper()
	if d.cmd != nil {
		d.t.Fatalf("%s runs already", d.name)
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, d.args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GORACE=halt_on_error=0"}
	cmd.Env = append(cmd.Env, d.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	fmt.Fprintln(log, "--- started", time.Now().UTC().Format(time.RFC3339Nano))
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState says how it ended
	}()
	d.cmd, d.ended = cmd, ended
}

// kill is kill -9: nobody is told, nothing is flushed.
func (d *daemon) kill() {
	if d.cmd == nil {
		return
	}
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	<-d.ended
	d.cmd = nil
}

// halt is SIGSTOP: what the kernel does for the process goes on, and nothing else.
func (d *daemon) halt() {
	d.t.Helper()
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		d.t.Fatalf("halt %s: %v", d.name, err)
	}
}

// stopLimit is far longer than the 2 s that requests under way may take and the 1 s of an agent's farewell together.
const stopLimit = 30 * time.Second

// stop is SIGTERM. The process must end by itself, and well.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(stopLimit):
		d.t.Fatalf("%s has not ended %s after SIGTERM", d.name, stopLimit)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.t.Errorf("%s after SIGTERM: got exit code %d, want 0", d.name, code)
	}
	d.cmd = nil
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatalf("signal %s: %v", d.name, err)
	}
}

// fell reports whether the process ended without being asked to.
func (d *daemon) fell() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

func (d *daemon) logged() string {
	b, err := os.ReadFile(d.log)
	if err != nil && !os.IsNotExist(err) {
		d.t.Error(err)
	}
	return string(b)
}

// check fails the test for what no log may ever hold.
func (d *daemon) check() {
	text := d.logged()
	for _, w := range []string{"panic:", "fatal error:", "WARNING: DATA RACE"} {
		if strings.Contains(text, w) {
			d.t.Errorf("the log of %s tells %q", d.name, w)
		}
	}
}

// shownLines of each log are shown when a test fails.
const shownLines = 80

func (d *daemon) dump() {
	lines := strings.Split(strings.TrimSpace(d.logged()), "\n")
	d.t.Logf("log of %s:\n%s", d.name, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
}

// nextPort counts through ports below those that the kernel gives to outgoing connections (32768 and up, see
// ip_local_port_range in ip(7)): no connection takes a daemon's port by chance while the daemon is dead. It begins at a
// random port: another test run may be on the same machine.
var nextPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(10000 + rand.Uint32N(20000))
	return &n
}()

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		at := fmt.Sprintf("127.0.0.1:%d", 10000+(nextPort.Add(1)-10000)%22000)
		l, err := net.Listen("tcp", at)
		if err == nil {
			l.Close()
			return at
		}
	}
	t.Fatal("no free port between 10000 and 32000")
	return ""
}
