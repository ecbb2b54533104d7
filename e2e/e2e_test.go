// Package e2e_test runs the real binary: coordinator and agents as processes on loopback, with real files, real sockets, real signals and
// kill -9. It shows what a synctest bubble cannot: a process that is started after a kill keeps what the killed process promised, and the
// verbs say so with the right words and exit codes.
//
// It needs no root and nothing installed; only the stories with Spark, which `make interop` runs, need a JDK and what tools/spark brings.
// It looks from outside only: at what verbs print, at HTTP replies, at files that people would look at. Each story has a fleet of its own,
// and waits for what it expects however long it takes. Nothing imports this package, and it replaces no test of a part.
package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the lifeboat that all stories run. TestMain sets it, once.
var binary string

// stories at once: they wait far more than they compute, so the number of processors is no measure.
const stories = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(build(m))
}

// build makes the binary as `make build` does. LIFEBOAT_E2E_BINARY names another one: a release, or one built with -race.
func build(m *testing.M) int {
	if testing.Short() {
		return m.Run() // every story skips itself
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", stories); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if binary = os.Getenv("LIFEBOAT_E2E_BINARY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lifeboat-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users must be able to run it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "lifeboat")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", binary, "../cmd/lifeboat")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		return 1
	}
	return m.Run()
}

// story marks a test that runs the binary: it is skipped with -short and runs beside others.
func story(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take their time")
	}
	t.Parallel()
}

// said is the result of a program: its output and exit code.
type said struct {
	t              *testing.T
	line           string
	code           int
	stdout, stderr string
}

// runLimit is far longer than any verb here should take: a verb that is not done by then hangs.
const runLimit = 2 * time.Minute

// run runs a program to its end, with no more of our environment than it needs to run at all.
func run(t *testing.T, as *syscall.Credential, env []string, program string, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, env...)
	cmd.SysProcAttr = ownGroup()
	cmd.SysProcAttr.Credential = as
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %s: not done after %s\nstdout: %s\nstderr: %s", filepath.Base(program), strings.Join(args, " "), runLimit, &stdout, &stderr)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return said{t, filepath.Base(program) + " " + strings.Join(args, " "), cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// exits fails the test unless the program exited with that code.
func (s said) exits(codes ...int) said {
	s.t.Helper()
	if !slices.Contains(codes, s.code) {
		s.t.Fatalf("%s: got exit code %d, want %d\nstdout: %s\nstderr: %s", s.line, s.code, codes, s.stdout, s.stderr)
	}
	return s
}

// tells fails the test unless all words are in the program's output.
func (s said) tells(words ...string) said {
	s.t.Helper()
	for _, w := range words {
		if !strings.Contains(s.stderr+s.stdout, w) {
			s.t.Errorf("%s: does not tell %q\nstdout: %s\nstderr: %s", s.line, w, s.stdout, s.stderr)
		}
	}
	return s
}
