package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pidFileOf(t *testing.T, pid int) pidFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker.pid")
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n/var/lib/worker\n", pid), 0o644); err != nil {
		t.Fatal(err)
	}
	return pidFile(path)
}

func tellPWR(t *testing.T, target Target) error {
	t.Helper()
	return Signal{Signal: syscall.SIGPWR, Target: target}.Tell(within(t, 20*time.Second), testWord(PhaseNoticed))
}

func TestSignalReachesWhoCatchesIt(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	if err := tellPWR(t, pidFileOf(t, worker.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	worker.says(t, "caught power failure")
}

func TestSignalSparesWhomItWouldKill(t *testing.T) {
	worker := start(t, "lbt-worker", false, "sleep", "300")
	err := tellPWR(t, pidFileOf(t, worker.Process.Pid))
	errorWith(t, err, fmt.Sprintf("lbt-worker (pid %d) does not catch SIGPWR and would die of it", worker.Process.Pid))
	worker.unharmed(t)

	halt := Signal{Signal: syscall.SIGTSTP, Target: pidFileOf(t, worker.Process.Pid)}
	errorWith(t, halt.Tell(t.Context(), Word{}), "would be halted by it")
	harmless := Signal{Signal: syscall.SIGWINCH, Target: pidFileOf(t, worker.Process.Pid)}
	if err := harmless.Tell(t.Context(), Word{}); err != nil {
		t.Errorf("SIGWINCH, which harms nobody: %v", err)
	}
	worker.unharmed(t)
}

func TestSignalThatIsIgnoredIsNotTold(t *testing.T) {
	worker := start(t, "", true, "sh", "-c", "trap '' PWR; echo ready; exec sleep 300")
	errorWith(t, tellPWR(t, pidFileOf(t, worker.Process.Pid)), "ignores SIGPWR")
}

func TestFirstProcessAndOurselvesAreSpared(t *testing.T) {
	errorWith(t, tellPWR(t, pidFileOf(t, 1)), "(pid 1) is the first process")
	errorWith(t, tellPWR(t, pidFileOf(t, os.Getpid())), "is this very process")
}

func TestStalePIDFile(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	file := pidFileOf(t, worker.Process.Pid)
	written := time.Now().Add(-time.Hour)
	if err := os.Chtimes(string(file), written, written); err != nil {
		t.Fatal(err)
	}
	errorWith(t, tellPWR(t, file), "is stale", written.Format(time.DateTime))
	if got := worker.ends(t); got != "" {
		t.Errorf("who has the number now was told: %s", got)
	}
	errorWith(t, tellPWR(t, pidFileOf(t, worker.Process.Pid)), "there is no such process")
}

func TestPIDFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	worker := start(t, "", true, os.Args[0], catchRole)
	file := pidFileOf(t, worker.Process.Pid)
	if err := os.Chown(string(file), 12345, -1); err != nil {
		t.Fatal(err)
	}
	errorWith(t, tellPWR(t, file), "belongs to user 12345")
	if got := worker.ends(t); got != "" {
		t.Errorf("got %q from who was not to be told", got)
	}
}

func TestPIDFileThatHoldsNoNumber(t *testing.T) {
	for _, text := range []string{"", "worker", "-1", "0", "12 13", strings.Repeat("9", 70)} {
		file := filepath.Join(t.TempDir(), "pid")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		errorWith(t, tellPWR(t, pidFile(file)), "which is no process's number")
	}
	errorWith(t, tellPWR(t, pidFile(t.TempDir()+"/none")), "read pid file")
	errorWith(t, tellPWR(t, pidFile(fifo(t, t.TempDir(), "pid"))), "is no file")
}

func TestMatchTellsAllThatCanBeTold(t *testing.T) {
	token := fmt.Sprintf("lbt-token-%d", os.Getpid())
	a := start(t, "lbt-a-long-name-of-a-worker", true, os.Args[0], catchRole, token)
	b := start(t, "lbt-other", true, os.Args[0], catchRole, token)
	deaf := start(t, "lbt-deaf", true, "sh", "-c", "echo ready; read never", token)

	err := tellPWR(t, match{CmdLine: regexp.MustCompile(token)})
	errorWith(t, err, fmt.Sprintf("lbt-deaf (pid %d) does not catch", deaf.Process.Pid))
	if strings.Contains(err.Error(), "workloads.test") || strings.Contains(err.Error(), "lbt-other") {
		t.Errorf("got %v, want only what was not told", err)
	}
	a.says(t, "caught power failure")
	b.says(t, "caught power failure")
	deaf.unharmed(t)

	if err := tellPWR(t, match{Comm: "lbt-a-long-name-of-a-worker", CmdLine: regexp.MustCompile(token)}); err != nil {
		t.Error(err)
	}
	a.says(t, "caught power failure")
	if err := tellPWR(t, match{Comm: "lbt-other", User: strconv.Itoa(os.Geteuid())}); err != nil {
		t.Error(err)
	}
	b.says(t, "caught power failure")
	errorWith(t, tellPWR(t, match{Comm: "lbt-other", User: "12345"}), "there are no processes named lbt-other, of user 12345")
	errorWith(t, tellPWR(t, match{Comm: "lbt-othe"}), "there are no")
	errorWith(t, tellPWR(t, match{User: "root"}), "it would mean every process")
	errorWith(t, tellPWR(t, match{Comm: "x", User: "no-such-user"}), "no-such-user")
	if got := a.ends(t) + b.ends(t); got != "" {
		t.Errorf("told once too often: %s", got)
	}
}

// A word that is told again, because one of its processes cannot be told, brings the others no second signal. Another word
// does.
func TestSignalComesOnceForAWord(t *testing.T) {
	token := fmt.Sprintf("lbt-once-%d", os.Getpid())
	a := start(t, "", true, os.Args[0], catchRole, token)
	deaf := start(t, "lbt-deaf", true, "sh", "-c", "echo ready; read never", token)
	settings := SignalSettings{Signal: "SIGPWR", Match: MatchSettings{CmdLine: token}}
	action, err := settings.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(incident string) error {
		t.Helper()
		w := testWord(PhaseNoticed)
		w.Incident = incident
		return action.Tell(within(t, 20*time.Second), w)
	}
	errorWith(t, tell("inc-1"), "lbt-deaf")
	errorWith(t, tell("inc-1"), "lbt-deaf")
	a.says(t, "caught power failure")
	late := start(t, "", true, os.Args[0], catchRole, token)
	errorWith(t, tell("inc-1"), "lbt-deaf")
	late.says(t, "caught power failure") // it was not there before
	errorWith(t, tell("inc-2"), "lbt-deaf")
	a.says(t, "caught power failure")
	late.says(t, "caught power failure")
	if got := a.ends(t) + late.ends(t); got != "" {
		t.Errorf("told once too often: %s", got)
	}
	deaf.end()
	if err := tell("inc-2"); err != nil {
		t.Errorf("got %v, want none: those that were told have ended", err)
	}
	errorWith(t, tell("inc-3"), "there are no processes")
}

// copied is a /proc with one process, copied from the real one.
func copied(t *testing.T, pid int) procfs {
	t.Helper()
	dir := t.TempDir()
	fake := procfs(dir)
	if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(pid)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stat", "status", "cmdline"} {
		b, err := os.ReadFile(procfs("").path(pid, name))
		if err == nil {
			err = os.WriteFile(fake.path(pid, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fake
}

// edit changes the nth field of a process's stat, as proc_pid_stat(5) counts them.
func edit(t *testing.T, fake procfs, pid, nth int, value string) {
	t.Helper()
	b, err := os.ReadFile(fake.path(pid, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b)) // the name has no blank here
	fields[nth-1] = value
	if err := os.WriteFile(fake.path(pid, "stat"), []byte(strings.Join(fields, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unitAt is a unit whose main process has the number pid; between runs before its second answer.
func unitAt(pid int, between func()) mainProcess {
	asked := 0
	return mainProcess{"spark.service", func(context.Context, string) (int, error) {
		if asked++; asked == 2 {
			between()
		}
		return pid, nil
	}}
}

func TestNumberThatWentToAnotherProcess(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	fake := copied(t, worker.Process.Pid)
	reused := unitAt(worker.Process.Pid, func() { edit(t, fake, worker.Process.Pid, 22, "123456789") })
	err := Signal{Signal: syscall.SIGPWR, Target: reused, Proc: string(fake)}.Tell(t.Context(), Word{})
	errorWith(t, err, "its number went to")
	if got := worker.ends(t); got != "" {
		t.Errorf("who has the number now was told: %s", got)
	}
}

func TestProcessThatEndsMeanwhile(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	err := tellPWR(t, unitAt(worker.Process.Pid, worker.end))
	errorWith(t, err, "there is no such process")

	// It ends after the last look: only the handle shows that, and no other process has its number by then.
	worker = start(t, "", true, os.Args[0], catchRole)
	fake := copied(t, worker.Process.Pid)
	err = Signal{syscall.SIGPWR, unitAt(worker.Process.Pid, worker.end), string(fake), nil}.Tell(t.Context(), Word{})
	errorWith(t, err, "ended before it could be told")
}

func TestKernelThreadsAreSpared(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	fake := copied(t, worker.Process.Pid)
	edit(t, fake, worker.Process.Pid, 9, strconv.Itoa(isKernelThread|0x40))
	err := Signal{syscall.SIGPWR, unitAt(worker.Process.Pid, func() {}), string(fake), nil}.Tell(t.Context(), Word{})
	errorWith(t, err, "is a thread of the kernel")
	err = Signal{syscall.SIGPWR, match{CmdLine: regexp.MustCompile(catchRole)}, string(fake), nil}.Tell(t.Context(), Word{})
	errorWith(t, err, "there are no processes matching")
}

// The kernel lets nobody read the command line of a process that is stuck in a change of its memory; reading it is like
// reading a pipe that nobody writes to. The other processes are told, and if none is found the answer is not that there is
// none.
func TestProcessWhoseArgumentsCannotBeReadHoldsNoWordBack(t *testing.T) {
	worker := start(t, "", true, os.Args[0], catchRole)
	proc, stuck := copied(t, worker.Process.Pid), os.Getppid()
	if err := os.CopyFS(filepath.Join(string(proc), strconv.Itoa(stuck)), os.DirFS(string(copied(t, stuck))+"/"+strconv.Itoa(stuck))); err != nil {
		t.Fatal(err)
	}
	lines := proc.path(stuck, "cmdline")
	if err := cmp.Or(os.Remove(lines), unix.Mkfifo(lines, 0o600)); err != nil {
		t.Fatal(err)
	}
	none := match{CmdLine: regexp.MustCompile("no such arguments"), lines: new(arguments)}
	for range 3 {
		_, err := none.find(t.Context(), proc)
		if errorWith(t, err, fmt.Sprintf("(pid %d), which hangs", stuck)); isNobody(err) {
			t.Errorf("it is said that there is nobody: %v", err)
		}
	}
	none.lines.mu.Lock()
	if n := len(none.lines.reading); n != 1 {
		t.Errorf("%d reads hang, want one", n)
	}
	none.lines.mu.Unlock()
	if err := (Signal{syscall.SIGPWR, match{CmdLine: regexp.MustCompile(catchRole)}, string(proc), nil}).Tell(t.Context(), Word{}); err != nil {
		t.Errorf("the others were not told: %v", err)
	}
	worker.says(t, "caught power failure")
	w, err := os.OpenFile(lines, os.O_RDWR, 0) // unblock the read
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// A workload may be looked at and told at the same time with the same match. A command line that one of them is reading does
// not count as unreadable for the other.
func TestProcessWhoseArgumentsTwoReadAtOnceIsFoundByBoth(t *testing.T) {
	proc := copied(t, os.Getppid())
	lines := proc.path(os.Getppid(), "cmdline")
	if err := cmp.Or(os.Remove(lines), unix.Mkfifo(lines, 0o600)); err != nil {
		t.Fatal(err)
	}
	workers := match{CmdLine: regexp.MustCompile("^worker$"), lines: new(arguments)}
	found := make(chan error)
	find := func() {
		_, err := workers.find(t.Context(), proc)
		found <- err
	}
	go find()
	w, err := os.OpenFile(lines, os.O_WRONLY, 0) // opens once the other side reads
	if err != nil {
		t.Fatal(err)
	}
	go find()
	time.AfterFunc(longRead/4, func() {
		w.WriteString("worker")
		w.Close()
	})
	for range 2 {
		if err := <-found; err != nil {
			t.Error(err)
		}
	}
}

func TestUnitWithoutMainProcess(t *testing.T) {
	errorWith(t, tellPWR(t, unitAt(0, func() {})), "spark.service has no main process")
	failing := mainProcess{"spark.service", func(context.Context, string) (int, error) { return 0, errors.New("no bus") }}
	errorWith(t, tellPWR(t, failing), "ask for the main process of spark.service: no bus")
}

func TestUnit(t *testing.T) {
	unit := Unit{Name: "spark.service", Stop: func(_ context.Context, unit string) error { return fmt.Errorf("stop %s: not loaded", unit) }}
	if err := unit.Tell(t.Context(), Word{}); err == nil || err.Error() != "stop spark.service: not loaded" {
		t.Errorf("got %v, want what was done said once", err)
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGPWR", "PWR", "pwr", "SigPwr"} {
		if got, err := parseSignal(name); got != syscall.SIGPWR || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"KILL": "no process can catch it", "SIGSTOP": "no process can catch it", "": "there is none", "POWER": "there is none", "30": "there is none",
	} {
		_, err := parseSignal(name)
		errorWith(t, err, want)
	}
}

func FuzzParseProcess(f *testing.F) {
	stat, err1 := os.ReadFile("/proc/self/stat")
	status, err2 := os.ReadFile("/proc/self/status")
	if err := errors.Join(err1, err2); err != nil {
		f.Fatal(err)
	}
	f.Add(stat, status)
	f.Add([]byte("812 (a) S 1 (b)) S 1 2 3 4 5 0 0 0 0 0 0 0 0 0 0 0 0 0 7 0"), []byte("Uid:\t1\t2\t3\t4\nSigIgn:\t1\nSigCgt:\t20000000\n"))
	f.Add([]byte(") ("), []byte("Uid:\t1\n"))
	f.Fuzz(func(t *testing.T, stat, status []byte) {
		p, err := parseProcess(stat, status)
		if err != nil {
			return
		}
		// A process that counts as catching a signal must say so in its status.
		if p.caught != 0 && !strings.Contains(string(status), "SigCgt:") {
			t.Errorf("caught %x, of which %q says nothing", p.caught, status)
		}
		if strings.ContainsAny(p.String(), "\n\x1b") {
			t.Errorf("%q would break a line", p)
		}
	})
}

func TestParseProcess(t *testing.T) {
	stat := "812 (a) S 1 (b)) S 1 2 3 4 5 2097152 0 0 0 0 0 0 0 0 0 0 0 0 77 0"
	p, err := parseProcess([]byte(stat), []byte("Name:\tx\nUid:\t1\t2\t3\t4\nSigIgn:\t1\nSigCgt:\t0000000120000000\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p.pid != 812 || p.comm != "a) S 1 (b)" || p.started != 77 || p.uid != 2 || !p.kernel || !p.catches(syscall.SIGPWR) || p.catches(syscall.SIGTERM) || !p.ignores(1) {
		t.Errorf("got %+v", p)
	}
	_, err = parseProcess([]byte(stat), []byte("Uid:\t1\t2\t3\t4\nSigIgn:\t1\n"))
	errorWith(t, err, "lacks")
}
