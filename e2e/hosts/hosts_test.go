// Package hosts_test tries Lifeboat where it will live: on networks that are cut in every way, and on hosts that boot
// systemd and install the package. Each machine is a network namespace with its own address; a booted one is a Debian in
// a container of systemd-nspawn, with its own metadata service at 169.254.169.254.
//
// It needs root, Linux and a few programs, and says which are missing. What it starts and mounts is gone when it ends,
// however it ends: all of it is in a PID and a mount namespace of its own, and the kernel empties those with the last
// process. It looks from outside only, as package e2e does; nothing imports it.
package hosts_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// insideVar is set in the process that has namespaces of its own. Its value is the directory that this process may fill.
const insideVar = "LIFEBOAT_HOSTS_INSIDE"

// storiesAtOnce is how many stories run at once: partitions wait far more than they compute, so the number of processors
// does not matter.
const storiesAtOnce = "4"

// inside is that directory; empty in a process in which all stories are skipped.
var inside = os.Getenv(insideVar)

func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case inside != "":
		os.Exit(within(m))
	case lacking() != nil:
		os.Exit(m.Run()) // every story skips itself and says why
	}
	code, err := enclose()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
	}
	os.Exit(code)
}

// lacking returns why the stories of this package cannot run here, or nil.
func lacking() error {
	switch {
	case testing.Short():
		return errors.New("real machines take their time")
	case os.Getenv("LIFEBOAT_HOSTS") == "":
		return errors.New("machines take minutes and root: make e2e, or LIFEBOAT_HOSTS=1")
	case os.Getuid() != 0:
		return errors.New("only root may make network namespaces: run it with sudo")
	}
	if err := needs("apt install iproute2 util-linux", "ip", "nsenter", "unshare"); err != nil {
		return err
	}
	return unshared()
}

// unshared returns why not even root may make namespaces here, as in most containers.
var unshared = sync.OnceValue(func() error {
	if out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("no namespaces can be made here: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
})

// needs returns an error that names the programs that are missing, and the remedy.
func needs(remedy string, programs ...string) error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s: %s", strings.Join(missing, ", "), remedy)
	}
	return nil
}

// story marks a test of this package: it runs beside others, and its end is printed in one line.
func story(t *testing.T) {
	t.Helper()
	if err := lacking(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	began := time.Now()
	t.Cleanup(func() {
		verdict := "passed"
		switch {
		case t.Failed():
			verdict = "FAILED"
		case t.Skipped():
			verdict = "skipped"
		}
		fmt.Printf("story %-60s %6.1f s  %s\n", strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "_", " "), time.Since(began).Seconds(), verdict)
	})
}

// enclose runs this test binary again as the first process of a PID namespace, with mounts of its own. When that process
// ends, the kernel kills all others in the namespace, and unmounts what they mounted. It ends no later than we do.
func enclose() (code int, err error) {
	dir, err := os.MkdirTemp("", "lifeboat-hosts-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVar+"="+dir, "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	stop := interrupted(func() { _ = cmd.Process.Kill() }) // it may have ended by itself
	defer stop()
	defer func() { err = errors.Join(err, removeCgroups(filepath.Base(dir))) }()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 1, fmt.Errorf("run the stories in namespaces of their own: %w", err)
	}
	if cmd.ProcessState.Success() {
		return 0, nil
	}
	return 1, nil
}

// within is the other half of enclose, in the new process. Its mounts are nobody else's; /proc is that of the PID
// namespace, and the named namespaces of ip(8) are on a file system of their own.
func within(m *testing.M) int {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", storiesAtOnce); err != nil {
			fmt.Fprintln(os.Stderr, "hosts:", err)
			return 1
		}
	}
	err := errors.Join(
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		os.MkdirAll(namespaces, 0o755),
		unix.Mount("tmpfs", namespaces, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosts: mounts of our own:", err)
		return 1
	}
	return m.Run()
}

// binary is the path of the lifeboat that all stories run, built as `make build` does. LIFEBOAT_E2E_BINARY names another
// one: a release, or one built with -race.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("LIFEBOAT_E2E_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(inside, "lifeboat")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", path, "../../cmd/lifeboat")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return path, nil
})

// lifeboat is the binary's path.
func lifeboat(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
