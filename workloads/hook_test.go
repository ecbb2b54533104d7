package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fifo makes a named pipe: opening it waits for the other side, so a script and a test meet there without sleeping.
func fifo(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// from reads what a script writes into a fifo.
func from(t *testing.T, fifo string) string {
	t.Helper()
	b, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// release lets a script continue that reads a fifo.
func release(t *testing.T, fifo string) {
	t.Helper()
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
}

// holdPID opens a handle on the process whose number a script wrote, and makes sure that it does not outlive the test.
func holdPID(t *testing.T, text string) *handle {
	t.Helper()
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	h, err := openHandle(pid)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() {
		h.signal(syscall.SIGKILL)
		h.close()
	})
	return h
}

// ended checks that a process is gone. It waits a little, because a killer may be a moment ahead of the kernel.
func ended(t *testing.T, h *handle) {
	t.Helper()
	if err := h.wait(within(t, 2*time.Second)); err != nil {
		t.Errorf("it goes on: %v", err)
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestHookIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	out := t.TempDir()
	h := testHook(t.TempDir(), `cat >$OUT/word; env >$OUT/env; pwd >$OUT/dir; cut -d' ' -f1,5,6 /proc/self/stat >$OUT/ids; echo $$ >>$OUT/ids`)
	h.Env, h.Dir = []string{"OUT=" + out}, out
	w := testWord(PhaseNoticed)
	w.Deadline, w.RemainingSeconds, w.Rehearsal = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), new(119.7), true
	if err := h.Tell(within(t, 20*time.Second), w); err != nil {
		t.Fatal(err)
	}
	var got Word
	b, err := os.ReadFile(filepath.Join(out, "word"))
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || strings.Count(string(b), "\n") != 1 || got.Incident != w.Incident || !got.Deadline.Equal(w.Deadline) || *got.RemainingSeconds != 119.7 {
		t.Errorf("stdin: got %q, %v, want the word on one line", b, err)
	}
	env := strings.Join(lines(t, filepath.Join(out, "env")), "\n") + "\n"
	for _, want := range []string{
		"PHASE=noticed", "NODE=node-a", "INCIDENT=inc-1", "KIND=preempt", "SOURCE=ec2", "STANCE=drain", "DEADLINE=2026-11-22T12:00:00Z",
		"REMAINING_SECONDS=119", "REASON=spot reclaim", "REHEARSAL=true",
	} {
		if !strings.Contains(env, "LIFEBOAT_"+want+"\n") {
			t.Errorf("the environment lacks LIFEBOAT_%s", want)
		}
	}
	if strings.Contains(env, "NOTIFY_SOCKET") {
		t.Error("the program could speak to the service manager in our name")
	}
	if dir := lines(t, filepath.Join(out, "dir"))[0]; dir != out {
		t.Errorf("it ran in %s, want %s", dir, out)
	}
	// cut is a child of the shell, which leads the group and the session.
	ids := lines(t, filepath.Join(out, "ids"))
	if f := strings.Fields(ids[0]); f[1] != ids[1] || f[2] != ids[1] {
		t.Errorf("group %s, session %s, want both to be the program's own, %s", f[1], f[2], ids[1])
	}
}

func TestHookThatFails(t *testing.T) {
	h := testHook(t.TempDir(), `for i in 1 2 3 4 5 6 7; do echo "line $i"; done; printf '\033[31mred\n' >&2; exit 3`)
	err := h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed))
	errorWith(t, err, "hook drain: exit status 3: line 4; line 5; line 6; line 7; ?[31mred")

	h = testHook(t.TempDir(), `kill -9 $$`)
	errorWith(t, h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)), "hook drain: killed by SIGKILL")

	h = Hook{Name: "drain", Argv: []string{"/no/such/program"}, State: t.TempDir()}
	errorWith(t, h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)), "hook drain: fork/exec /no/such/program: no such file")
}

func TestHookIsRunOnceForAWord(t *testing.T) {
	out := filepath.Join(t.TempDir(), "runs")
	h := testHook(t.TempDir(), `echo $LIFEBOAT_PHASE $LIFEBOAT_KIND >>$OUT; echo sorry; exit 4`)
	h.Env = []string{"OUT=" + out}
	changed, graver := testWord(PhaseChanged), testWord(PhaseChanged)
	changed.Deadline, graver.Deadline, graver.Kind = time.Unix(1e9, 0), time.Unix(1e9, 0), "terminate"
	other := testWord(PhaseNoticed)
	other.Incident = "a/../../inc-2" // not a path
	for range 2 {
		for _, w := range []Word{testWord(PhaseNoticed), changed, graver, testWord(PhaseDone), other} {
			errorWith(t, h.Tell(within(t, 20*time.Second), w), "exit status 4: sorry")
		}
	}
	got, want := strings.Join(lines(t, out), ", "), "noticed preempt, changed preempt, changed terminate, done preempt, noticed preempt"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if entries, err := os.ReadDir(h.State); err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v in the state, want a directory for each of two incidents", entries, err)
	}
}

func TestHookIsRunAgainAfterAReboot(t *testing.T) {
	out := filepath.Join(t.TempDir(), "runs")
	h := testHook(t.TempDir(), "echo ran >>"+out)
	r, err := openRun(h.State, testWord(PhaseNoticed), h.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"another-boot", ""} {
		err := errors.Join(r.put(supervisorFile, Identity{os.Getpid(), 1, boot}), r.put(resultFile, result{Code: 9}))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)); err != nil {
			t.Error(err)
		}
	}
	if got := len(lines(t, out)); got != 2 {
		t.Errorf("ran %d times, want once for each boot", got)
	}
}

// A cancelled context means that this process ends, not the machine.
func TestCancelledTellerLeavesTheHookAlone(t *testing.T) {
	dir := t.TempDir()
	began, gate := fifo(t, dir, "began"), fifo(t, dir, "gate")
	h := testHook(t.TempDir(), fmt.Sprintf(`echo $$ >%s; read x <%s; echo ran >>%s/runs; exit 6`, began, gate, dir))
	leaving := errors.New("we are leaving")
	ctx, cancel := context.WithCancelCause(within(t, 20*time.Second))
	told := make(chan error)
	go func() { told <- h.Tell(ctx, testWord(PhaseNoticed)) }()
	program := holdPID(t, from(t, began))
	cancel(leaving)
	if err := <-told; !errors.Is(err, leaving) {
		t.Errorf("got %v, want %v", err, leaving)
	}
	if err := program.wait(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the program ended with its teller: %v", err)
	}
	go func() { told <- h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)) }()
	release(t, gate)
	errorWith(t, <-told, "exit status 6")
	if got := len(lines(t, filepath.Join(dir, "runs"))); got != 1 {
		t.Errorf("ran %d times, want once", got)
	}
}

func TestHookSurvivesKill9OfItsTeller(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	began, gate := fifo(t, dir, "began"), fifo(t, dir, "gate")
	script := fmt.Sprintf(`echo $$ >%s; read x <%s; echo ran >>%s/runs; echo after all; exit 7`, began, gate, dir)
	teller := exec.Command(os.Args[0], tellRole, state, script)
	teller.Stderr = os.Stderr
	teller.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := teller.Start(); err != nil {
		t.Fatal(err)
	}
	program := holdPID(t, from(t, began))
	if err := syscall.Kill(-teller.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	teller.Wait()

	h := testHook(state, script)
	told := make(chan error)
	go func() { told <- h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)) }()
	release(t, gate)
	errorWith(t, <-told, "exit status 7: after all")
	ended(t, program)
	if got := len(lines(t, filepath.Join(dir, "runs"))); got != 1 {
		t.Errorf("ran %d times, want once", got)
	}
	// And once more, long after its end.
	errorWith(t, h.Tell(t.Context(), testWord(PhaseNoticed)), "exit status 7: after all")
}

// The teller dies at each moment of the start: the program is run once, by this or the next process.
func TestKill9AtAnyMoment(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		dir, state := t.TempDir(), t.TempDir()
		script := fmt.Sprintf("echo ran >>%s/runs; exit 8", dir)
		teller := exec.Command(os.Args[0], tellRole, state, script)
		if err := teller.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(round)*2*time.Millisecond, func() { teller.Process.Kill() })
		teller.Wait()
		timer.Stop()
		errorWith(t, testHook(state, script).Tell(within(t, 20*time.Second), testWord(PhaseNoticed)), "exit status 8")
		if got := len(lines(t, filepath.Join(dir, "runs"))); got != 1 {
			t.Errorf("killed after %d ms: ran %d times, want once", 2*round, got)
		}
	}
}

func TestDeadlineEndsTheWholeGroup(t *testing.T) {
	t.Parallel() // it takes the five seconds between the signals
	dir := t.TempDir()
	began := fifo(t, dir, "began")
	// Neither the program nor its children end at SIGTERM.
	script := fmt.Sprintf(`trap '' TERM; sh -c 'sh -c "echo \$\$ >%s; sleep 300"; true' ; true`, began)
	h := testHook(t.TempDir(), script)
	told := make(chan error)
	const deadline = 5 * time.Second // by then the slowest machine has begun
	ctx := within(t, deadline)
	started := time.Now()
	go func() { told <- h.Tell(ctx, testWord(PhaseNoticed)) }()
	grandchild := holdPID(t, from(t, began))
	errorWith(t, <-told, "hook drain: stopped, as the time is up: killed by SIGKILL")
	if took := time.Since(started); took < deadline+grace {
		t.Errorf("it took %v, want SIGKILL no sooner than %v after the deadline", took, grace)
	}
	ended(t, grandchild)
}

func TestDeadlineEndsWhomTheProgramLeavesBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := fifo(t, dir, "began")
	// The program ends at SIGTERM, its child does not.
	h := testHook(t.TempDir(), fmt.Sprintf(`trap 'echo bye; exit 0' TERM; sh -c 'trap "" TERM; echo $$ >%s; exec sleep 300' & wait`, began))
	told := make(chan error)
	ctx := within(t, 5*time.Second) // by then the slowest machine has begun
	go func() { told <- h.Tell(ctx, testWord(PhaseNoticed)) }()
	child := holdPID(t, from(t, began))
	errorWith(t, <-told, "stopped, as the time is up: exit status 0: bye")
	ended(t, child)
}

func TestDeadlineThatIsOverStartsNothing(t *testing.T) {
	h := testHook(t.TempDir(), "echo ran >ran")
	h.Dir = t.TempDir()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := h.Tell(ctx, testWord(PhaseNoticed)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if _, err := os.Stat(filepath.Join(h.Dir, "ran")); err == nil {
		t.Error("it was started")
	}
}

func TestWithdrawalStopsWhatWasBegun(t *testing.T) {
	dir := t.TempDir()
	began := fifo(t, dir, "began")
	h := testHook(t.TempDir(), fmt.Sprintf(`case $LIFEBOAT_PHASE in
		noticed|changed) echo $$ >%s; exec sleep 300;;
		withdrawn) echo back; exit 5;;
	esac`, began))
	tell := func(p Phase) <-chan error {
		told := make(chan error, 1)
		go func() { told <- h.Tell(within(t, 20*time.Second), testWord(p)) }()
		return told
	}
	noticed := tell(PhaseNoticed)
	first := holdPID(t, from(t, began))
	changed := tell(PhaseChanged)
	second := holdPID(t, from(t, began))

	errorWith(t, <-tell(PhaseWithdrawn), "exit status 5: back")
	ended(t, first)
	ended(t, second)
	for _, told := range []<-chan error{noticed, changed} {
		errorWith(t, <-told, "stopped, as the notice was withdrawn: killed by SIGTERM")
	}
}

func TestSupervisorThatIsKilled(t *testing.T) {
	dir := t.TempDir()
	began := fifo(t, dir, "began")
	h := testHook(t.TempDir(), fmt.Sprintf(`echo $$ $PPID >%s; exec sleep 300`, began))
	told := make(chan error)
	go func() { told <- h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)) }()
	program, supervisor, _ := strings.Cut(from(t, began), " ")
	sleep := holdPID(t, program)
	holdPID(t, supervisor).signal(syscall.SIGKILL)
	errorWith(t, <-told, "how it ended is not known")
	// Telling it again does not run the program twice: it may still run, as it does here.
	errorWith(t, h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)), "how it ended is not known")
	if err := sleep.wait(within(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the program: %v, want it to go on", err)
	}
}

func TestDetachComesBeforeTheProgram(t *testing.T) {
	out := filepath.Join(t.TempDir(), "parent")
	h := testHook(t.TempDir(), "echo $PPID >>"+out)
	var moved int
	h.Detach = func(_ context.Context, pid int) error {
		if moved == 0 {
			<-time.After(100 * time.Millisecond) // as a slow manager would take
		}
		if _, err := os.Stat(out); err == nil && moved == 0 {
			t.Error("the program was started before")
		}
		moved = pid
		return errors.New("no bus")
	}
	// A program that stays in this process's control group has done no harm once it is over.
	if err := h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)); err != nil {
		t.Error(err)
	}
	if got := lines(t, out)[0]; got != strconv.Itoa(moved) {
		t.Errorf("moved process %d, want the program's parent %s", moved, got)
	}
	h.Argv = []string{"false"}
	err := h.Tell(within(t, 20*time.Second), testWord(PhaseDone))
	errorWith(t, err, "exit status 1", "move it out of our control group: no bus")
}

// A withdrawal may come while the service manager is still being asked.
func TestHookThatIsStoppedBeforeItStarts(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	h := testHook(t.TempDir(), "echo $LIFEBOAT_PHASE >>"+ran)
	withdrawing := h
	h.Detach = func(context.Context, int) error {
		return withdrawing.Tell(within(t, 20*time.Second), testWord(PhaseWithdrawn))
	}
	err := h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed))
	errorWith(t, err, "stopped, as the notice was withdrawn")
	if got := lines(t, ran); len(got) != 1 || got[0] != "withdrawn" {
		t.Errorf("got %v, want only the withdrawal told", got)
	}
}

// A program leaves a process behind that prints much later on: that is cut, too, by a process that ends with it.
func TestOutputOfWhatIsLeftBehindIsCut(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	word, err := os.OpenFile(filepath.Join(dir, "go"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer word.Close()
	h := testHook(dir, `{ read line; head -c 3000000 /dev/zero | tr '\0' x; } <`+dir+`/go & echo the end`)
	if err := h.Tell(within(t, 60*time.Second), testWord(PhaseNoticed)); err != nil {
		t.Fatal(err)
	}
	r, err := openRun(h.State, testWord(PhaseNoticed), h.Name)
	if err != nil {
		t.Fatal(err)
	}
	cutter := 0
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		if line, err := os.ReadFile(at); err == nil && strings.HasSuffix(string(line), "\x00"+leftArg+"\x00"+r.dir+"\x00") {
			cutter, _ = strconv.Atoi(filepath.Base(filepath.Dir(at)))
		}
	}
	if cutter == 0 {
		t.Fatal("nobody looks after what was left behind")
	}
	handle, err := openHandle(cutter)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.close()
	if _, err := word.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	if err := handle.wait(within(t, 60*time.Second)); err != nil {
		t.Fatalf("who cuts the output does not end with it: %v", err)
	}
	if info, err := os.Stat(r.path(outputFile)); err != nil || info.Size() < 3_000_000 || onDisk(info) > mostOutput {
		t.Errorf("output: %+v, %v, want all but %d bytes cut of three million", info, err, mostOutput)
	}
}

func TestHugeOutputIsCut(t *testing.T) {
	h := testHook(t.TempDir(), `head -c 300000000 /dev/zero | tr '\0' x; echo; echo the end; exit 1`)
	errorWith(t, h.Tell(within(t, 60*time.Second), testWord(PhaseNoticed)), "the end")
	r, err := openRun(h.State, testWord(PhaseNoticed), h.Name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.path(outputFile))
	if err != nil || onDisk(info) > mostOutput {
		t.Errorf("output: %d bytes on disk, %v, want at most %d", onDisk(info), err, mostOutput)
	}
	if first := lines(t, r.path(outputFile))[0]; !strings.HasSuffix(first, "bytes were cut here]") {
		t.Errorf("the output begins with %.80q, want it said that some is missing", first)
	}
}

func TestOldRunsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	began, gate := fifo(t, dir, "began"), fifo(t, dir, "gate")
	h := testHook(t.TempDir(), fmt.Sprintf(`test $LIFEBOAT_INCIDENT != inc-1 || { echo $$ >%s; read x <%s; }`, began, gate))
	told := make(chan error)
	go func() { told <- h.Tell(within(t, 20*time.Second), testWord(PhaseNoticed)) }()
	holdPID(t, from(t, began))
	for i := range 8 {
		w := testWord(PhaseNoticed)
		w.Incident = fmt.Sprint("later-", i)
		if err := h.Tell(within(t, 20*time.Second), w); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(h.State)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > keptIncidents+1 || entries[0].Name() != "inc-1" || entries[len(entries)-1].Name() != "later-7" {
		t.Errorf("got %v, want the last %d and the one that still runs", entries, keptIncidents)
	}
	release(t, gate)
	if err := <-told; err != nil {
		t.Error(err)
	}
}

func TestSupervisorNeedsARun(t *testing.T) {
	if got := Supervise(nil); got != 2 {
		t.Errorf("got exit status %d without a run, want 2", got)
	}
}

// A supervisor's command line contains the name of its hook, and a match may look for that name.
func TestSupervisorIsNobodysTarget(t *testing.T) {
	dir := t.TempDir()
	said, gate := fifo(t, dir, "said"), fifo(t, dir, "gate")
	h := testHook(t.TempDir(), `echo $$ >"$SAID"; read go <"$GATE"`)
	h.Name, h.Env = "engine-7f3a", []string{"SAID=" + said, "GATE=" + gate}
	told := make(chan error, 1)
	go func() { told <- h.Tell(t.Context(), testWord(PhaseNoticed)) }()
	holdPID(t, from(t, said))
	w := open(t, Settings{Type: "match", Match: MatchSettings{CmdLine: "engine-7f3a"}}, nil)
	if l := w.Look(t.Context(), nil, true); l.State != Done || l.Count > 0 {
		t.Errorf("got %+v, want it done: there is nobody but the hook's supervisor", l)
	}
	release(t, gate)
	if err := <-told; err != nil {
		t.Error(err)
	}
}
