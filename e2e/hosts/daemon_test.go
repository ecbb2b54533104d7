package hosts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is a lifeboat process that runs on a machine until the story ends it.
type daemon struct {
	t    *testing.T
	on   *machine
	args []string
	log  string        // file that all its lives write to
	skew time.Duration // by how much its clock is wrong

	cmd   *exec.Cmd     // nil: not running
	ended chan struct{} // closed when cmd has been waited for
}

// command is a lifeboat on the machine, with nothing of our environment. nsenter executes it and so has the same PID.
func (m *machine) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	m.w.t.Helper()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + filepath.Join(namespaces, m.ns), lifeboat(m.w.t)}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := d.on.command(context.Background(), nil, d.args...)
	if d.skew != 0 {
		wrong, err := askew()
		if err != nil {
			d.t.Fatal(err)
		}
		cmd.Args[2] = wrong
		cmd.Env = append(cmd.Env, "LIFEBOAT_E2E_SKEW="+d.skew.String())
	}
	cmd.Stdout, cmd.Stderr = log, log
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

// shownLines of each log are shown when a story fails.
const shownLines = 60

// end kills the process, fails the story if the log has what no log may have, and shows the log of a story that
// failed.
func (d *daemon) end() {
	d.kill()
	text, err := os.ReadFile(d.log)
	if err != nil && !os.IsNotExist(err) {
		d.t.Error(err)
	}
	for _, w := range []string{"panic:", "fatal error:", "WARNING: DATA RACE"} {
		if strings.Contains(string(text), w) {
			d.t.Errorf("the log of %s tells %q", d.on.name, w)
		}
	}
	if d.t.Failed() {
		d.t.Logf("log of %s:\n%s", d.on.name, lastLines(string(text)))
	}
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}

// said is the result of a program: its output and exit code.
type said struct {
	t              *testing.T
	line           string
	began, ended   time.Time
	code           int
	stdout, stderr string
}

// runLimit is far longer than any verb here should take: a verb that is not done by then hangs.
const runLimit = 2 * time.Minute

// run runs a verb on the machine.
func (m *machine) run(env []string, args ...string) said {
	m.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	return finish(ctx, m.w.t, m.command(ctx, env, args...), "lifeboat "+strings.Join(args, " "))
}

// finish runs cmd to its end.
func finish(ctx context.Context, t *testing.T, cmd *exec.Cmd, line string) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: not done in time\nstdout: %s\nstderr: %s", line, &stdout, &stderr)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return said{t, line, began, time.Now(), cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// exits fails the story unless the program exited with that code.
func (s said) exits(code int) said {
	s.t.Helper()
	if s.code != code {
		s.t.Fatalf("%s: got exit code %d, want %d\nstdout: %s\nstderr: %s", s.line, s.code, code, s.stdout, s.stderr)
	}
	return s
}

// moment is an instant between first and last: from outside, more cannot be known of it.
type moment struct{ first, last time.Time }

// gives is the deadline that a verb has set which gave a node so much time.
func (s said) gives(lead time.Duration) moment { return moment{s.began.Add(lead), s.ended.Add(lead)} }

// decode reads JSON that a verb printed.
func decode[T any](s said) (v T) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.stdout), &v); err != nil {
		s.t.Fatalf("%s: %v\n%s", s.line, err, s.stdout)
	}
	return v
}

// patience is how long a story waits for what it expects: far longer than that takes on the slowest machine, and than
// systemd's longest watchdog. How long it took goes to the log, and decides nothing.
const patience = 2 * time.Minute

// until calls want until it returns nil.
func until(t *testing.T, want func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := want()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
	}
}
