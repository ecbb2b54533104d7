package workloads

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	catchRole = "catch" // prints each SIGPWR that it gets, until it gets SIGTERM
	tellRole  = "tell"  // tells the hook of testHook in the directory that follows
	defyRole  = "defy"  // ignores SIGTERM
	forkRole  = "fork"  // starts two defying children, prints their numbers, and ends at SIGTERM
)

// TestMain lets this binary play the processes that are told, the one that tells, and the hooks' supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case SupervisorArg:
			os.Exit(Supervise(os.Args[2:]))
		case catchRole:
			catch()
			os.Exit(0)
		case defyRole:
			defy()
			os.Exit(0)
		case forkRole:
			fork()
			os.Exit(0)
		case tellRole:
			err := testHook(os.Args[2], os.Args[3]).Tell(context.Background(), testWord(PhaseNoticed))
			fmt.Fprintln(os.Stderr, "told:", err)
			os.Exit(1)
		}
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each of these processes takes a second to end under -race
	os.Exit(m.Run())
}

func catch() {
	signals := make(chan os.Signal, 9)
	signal.Notify(signals, syscall.SIGPWR, syscall.SIGTERM)
	fmt.Println("ready")
	for s := range signals {
		if s == syscall.SIGTERM {
			return
		}
		fmt.Println("caught", s)
	}
}

func defy() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) // until it is killed, or the test is over
}

func fork() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	for range 2 {
		c := exec.Command("/proc/self/exe", defyRole)
		c.Stdin = os.Stdin
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	<-signals
}

func testWord(p Phase) Word {
	return Word{Phase: p, Node: "node-a", Incident: "inc-1", Kind: "preempt", Source: "ec2", Stance: "drain", Reason: "spot\x00 reclaim"}
}

// testHook runs a script of the shell.
func testHook(state, script string) Hook {
	return Hook{Name: "drain", Argv: []string{"/bin/sh", "-c", script}, State: state}
}

// child is a process that lives until the test ends.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

// start runs a program, under another name if name is set, and waits for its first line if it speaks.
func start(t *testing.T, name string, speaks bool, argv ...string) child {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	if name != "" { // the kernel takes a process's name from the path that was executed
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		path = link
	}
	cmd := exec.Command(path, argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // nothing is written to it, so a child that reads it waits
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := child{cmd, bufio.NewReader(out)}
	t.Cleanup(func() { c.end() })
	if speaks {
		c.says(t, "ready")
	}
	return c
}

func (c child) end() {
	c.Process.Kill()
	c.Wait()
}

func (c child) says(t *testing.T, want string) {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if got := strings.TrimSpace(line); err != nil || got != want {
		t.Fatalf("%s said %q, %v, want %q", c.Path, got, err, want)
	}
}

// ends asks the process to end and returns what it printed until then.
func (c child) ends(t *testing.T) string {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%s: %v", c.Path, err)
	}
	return string(rest)
}

// unharmed checks that the process is still there.
func (c child) unharmed(t *testing.T) {
	t.Helper()
	if _, err := procfs("").read(c.Process.Pid); err != nil {
		t.Errorf("%s: %v, want it untouched", c.Path, err)
	}
}

// errorWith checks that an error contains all of want.
func errorWith(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want an error with %q", err, w)
		}
	}
}

// within makes a context for work of real processes, which takes milliseconds.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
