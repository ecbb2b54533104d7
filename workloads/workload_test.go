package workloads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/systemd"
)

// open makes a workload of settings, which must be valid.
func open(t *testing.T, s Settings, units Units) *Workload {
	t.Helper()
	s.Name = "w"
	Validate(func(key string, value any, bound, remedy string) { t.Fatalf("%s: %v: %s", key, value, bound) }, "workloads", []Settings{s})
	w, err := s.Open(units, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// looks checks the result of a look.
func looks(t *testing.T, l Look, state State, count int) {
	t.Helper()
	if l.State != state || l.Count != count {
		t.Errorf("got %s with %d processes (%s), want %s with %d", l.State, l.Count, l.Trouble, state, count)
	}
}

// vanishes waits until the processes are gone, which takes as long as the kernel needs.
func vanishes(t *testing.T, w *Workload, known []Identity) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	for _, id := range known {
		h, err := openHandle(id.PID)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := h.wait(ctx); err != nil {
			t.Errorf("process %d: %v, want it gone", id.PID, err)
		}
		h.close()
	}
	looks(t, w.Look(ctx, known, true), Done, 0)
}

// A pid file says which process is meant. Once that is known, the file may be removed before the process ends.
func TestWorkloadOfAPIDFile(t *testing.T) {
	c := start(t, "", true, "/proc/self/exe", catchRole)
	file := string(pidFileOf(t, c.Process.Pid))
	w := open(t, Settings{Type: "pid_file", PIDFile: file}, nil)
	ctx := within(t, 10*time.Second)
	first := w.Look(ctx, nil, true)
	looks(t, first, Running, 1)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	looks(t, w.Look(ctx, nil, true), Done, 0)
	looks(t, w.Look(ctx, first.Processes, true), Running, 1)
	asked, err := w.Terminate(ctx, first.Processes)
	if err != nil || len(asked) != 1 {
		t.Errorf("asked %v, %v, want the one process", asked, err)
	}
	vanishes(t, w, asked)
}

// A pid file that is unreadable or holds nonsense does not mean that the process is gone.
func TestPIDFileThatSaysNothingIsNotDone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.pid")
	if err := os.WriteFile(file, []byte("starting\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		looks(t, open(t, Settings{Type: "pid_file", PIDFile: path}, nil).Look(t.Context(), nil, true), Unknown, 0)
	}
}

// If the processes of other users are hidden, finding none does not mean that there is none.
func TestHiddenProcessesAreNotDone(t *testing.T) {
	w := open(t, Settings{Type: "match", Match: MatchSettings{Comm: "nobody-has-it"}}, nil)
	k := w.kind.(processKind)
	k.proc = procfs(t.TempDir())
	w.kind = k
	l := w.Look(t.Context(), nil, true)
	looks(t, l, Unknown, 0)
	if !strings.Contains(l.Trouble, "hidden") {
		t.Errorf("got %q, want it to say that they are hidden", l.Trouble)
	}
}

// A process that ignores SIGTERM stays until it is killed, and no other process is.
func TestStubbornWorkload(t *testing.T) {
	bystander := start(t, "bystander", true, "/proc/self/exe", catchRole)
	start(t, "stubborn-one", true, "/proc/self/exe", defyRole)
	start(t, "stubborn-one", true, "/proc/self/exe", defyRole)
	w := open(t, Settings{Type: "match", Match: MatchSettings{Comm: "stubborn-one"}}, nil)
	ctx := within(t, 10*time.Second)
	asked, err := w.Terminate(ctx, nil)
	if err != nil || len(asked) != 2 {
		t.Fatalf("asked %v, %v, want both", asked, err)
	}
	later := start(t, "stubborn-one", true, "/proc/self/exe", defyRole)
	looks(t, w.Look(ctx, asked, true), Running, 3)
	if err := w.Kill(ctx, asked); err != nil {
		t.Error(err)
	}
	later.unharmed(t) // it was not asked
	bystander.unharmed(t)
	later.Process.Kill()
	later.Wait()
	vanishes(t, w, asked)
}

// The children of a process are killed with it, even if it ended first.
func TestForkingWorkload(t *testing.T) {
	parent := start(t, "", true, "/proc/self/exe", forkRole)
	w := open(t, Settings{Type: "pid_file", PIDFile: string(pidFileOf(t, parent.Process.Pid))}, nil)
	ctx := within(t, 10*time.Second)
	looks(t, w.Look(ctx, nil, true), Running, 1)
	asked, err := w.Terminate(ctx, nil)
	if err != nil || len(asked) != 3 {
		t.Fatalf("asked %v, %v, want the parent and its two children", asked, err)
	}
	if _, err := parent.Process.Wait(); err != nil { // not parent.Wait, which closes the pipe that its children read
		t.Fatal(err)
	}
	looks(t, w.Look(ctx, asked, true), Running, 2)
	if err := w.Kill(ctx, asked); err != nil {
		t.Error(err)
	}
	vanishes(t, w, asked)
}

// A number that went to another process, or that is from before a boot, means no process.
func TestReusedNumbersMeanNobody(t *testing.T) {
	c := start(t, "", true, "/proc/self/exe", catchRole)
	p, err := procfs("").read(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	w := open(t, Settings{Type: "pid_file", PIDFile: filepath.Join(t.TempDir(), "gone.pid")}, nil)
	known := []Identity{{p.pid, p.started - 1, boot}, {p.pid, p.started, "another boot"}}
	looks(t, w.Look(t.Context(), known, true), Done, 0)
	asked, err := w.Terminate(t.Context(), known)
	if err != nil || len(asked) != 0 {
		t.Errorf("asked %v, %v, want nobody", asked, err)
	}
	if err := w.Kill(t.Context(), known); err != nil {
		t.Error(err)
	}
	c.unharmed(t)
}

// The first process's descendants, which are all processes, are never included, nor are this process's own.
func TestOffspringOfTheFirstProcessIsSpared(t *testing.T) {
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	k := processKind{boot: boot}
	for _, pid := range []int{1, os.Getpid()} {
		p, err := k.proc.read(pid)
		if err != nil {
			t.Fatal(err)
		}
		head := k.identities([]process{p})
		if got := k.withOffspring(head); len(got) != 1 {
			t.Errorf("process %d: got %d processes, want it alone", pid, len(got))
		}
	}
}

func script(text string) []string { return []string{"/bin/sh", "-c", text} }

// The statuses of a program: 0 runs, 1 is done, and any other is not known.
func TestWorkloadThatAProgramKnows(t *testing.T) {
	for text, want := range map[string]State{
		"exit 0": Running, "exit 1": Done, "exit 2": Unknown, "exit 127": Unknown, "kill -9 $$": Unknown, "sleep 120 & exit 0": Running,
	} {
		began := time.Now()
		if got := open(t, Settings{Type: "exec", Command: script(text)}, nil).Look(t.Context(), nil, true).State; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: took %s: what it left behind was waited for", text, took)
		}
	}
	if l := open(t, Settings{Type: "exec", Command: []string{"/no/such/program"}}, nil).Look(t.Context(), nil, true); l.State != Unknown {
		t.Errorf("a program that is not there: got %s, want UNKNOWN", l.State)
	}
}

// A program that does not answer is killed with all that it started, and the state is not known.
func TestSlowProgramIsKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	s := Settings{Type: "exec", Command: script("sleep 301 & echo $! $$ > " + pids + "; wait"), Timeout: 500 * time.Millisecond}
	var w *Workload
	var both []string
	for ; len(both) < 2; s.Timeout *= 2 { // it may be killed before it has started any process
		w = open(t, s, nil)
		looks(t, w.Look(t.Context(), nil, true), Unknown, 0)
		text, err := os.ReadFile(pids)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		both = strings.Fields(string(text))
	}
	for _, field := range both {
		pid, _ := strconv.Atoi(field)
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // a killed process ends once it gets a processor: wait for it
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Minute.Milliseconds()))
			unix.Close(fd)
		}
		if _, err := procfs("").read(pid); !errors.Is(err, errGone) {
			t.Errorf("process %d: %v, want it killed", pid, err)
		}
	}
	if _, busy := w.begin(); busy {
		t.Error("the look hangs, want none that does: it could be killed")
	}
}

// stuck is a kind whose look never ends.
type stuck struct {
	execKind
	looks *atomic.Int32
	free  chan struct{}
}

func (s stuck) look(context.Context, []Identity) Look {
	s.looks.Add(1)
	<-s.free
	return Look{State: Done}
}

// A look that nothing can end is left behind, and no second one begins.
func TestStuckLookIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		k := stuck{looks: &n, free: make(chan struct{})}
		w := &Workload{Name: "w", kind: k, timeout: 10 * time.Second}
		began := time.Now()
		looks(t, w.Look(t.Context(), nil, true), Unknown, 0)
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("took %s, want its time and a second", took)
		}
		looks(t, w.Look(t.Context(), nil, true), Unknown, 0)
		if n.Load() != 1 {
			t.Errorf("looked %d times, want one", n.Load())
		}
		close(k.free)
		synctest.Wait()
		looks(t, w.Look(t.Context(), nil, true), Done, 0)
	})
}

// A workload that never ends by itself may be done all the same. That is asked when the node leaves, and not before.
func TestDoneIsAskedWhenTheNodeLeaves(t *testing.T) {
	c := start(t, "", true, "/proc/self/exe", catchRole)
	s := Settings{Type: "pid_file", PIDFile: string(pidFileOf(t, c.Process.Pid)), Done: script("exit 0")}
	w := open(t, s, nil)
	looks(t, w.Look(t.Context(), nil, false), Running, 1)
	looks(t, w.Look(t.Context(), nil, true), Done, 1)
	s.Done = script("exit 1")
	looks(t, open(t, s, nil).Look(t.Context(), nil, true), Running, 1)
	s.Done = script("exit 3")
	if l := open(t, s, nil).Look(t.Context(), nil, true); l.State != Running || l.Trouble == "" {
		t.Errorf("got %s %q, want RUNNING with the trouble of the program", l.State, l.Trouble)
	}
}

// The apps of a workload are those of the last list, as long as no newer one is known.
func TestListIsKeptWhileNothingIsKnown(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("app-1 7\napp-2\napp-1 8\napp-1 7\n\n")
	c := start(t, "", true, "/proc/self/exe", catchRole)
	w := open(t, Settings{Type: "pid_file", PIDFile: string(pidFileOf(t, c.Process.Pid)), List: []string{"/bin/cat", list}}, nil)
	want := "[app-1 app-2] [{app-1 7} {app-1 8}]"
	l := w.Look(t.Context(), nil, false)
	if got := fmt.Sprint(l.Apps, l.Executors); got != want || l.Trouble != "" {
		t.Errorf("got %s (%s), want %s", got, l.Trouble, want)
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	l = w.Look(t.Context(), nil, false)
	if got := fmt.Sprint(l.Apps, l.Executors); got != want || l.Trouble == "" {
		t.Errorf("got %s (%s), want what was listed last and the trouble", got, l.Trouble)
	}
	write("")
	if l = w.Look(t.Context(), nil, false); len(l.Apps) != 0 || l.Trouble != "" {
		t.Errorf("got %v (%s), want no apps", l.Apps, l.Trouble)
	}
}

func FuzzList(f *testing.F) {
	f.Add("app-1 7\napp-2\n")
	f.Add(strings.Repeat("a", 300) + " b\n\xff c d e")
	f.Add(strings.Repeat("app x\n", 20000))
	f.Fuzz(func(t *testing.T, answer string) {
		apps, executors, _ := parseList("list", answer[:min(len(answer), longestAnswer)])
		if len(apps) > mostApps || len(executors) > mostExecutors {
			t.Fatalf("%d apps, %d executors", len(apps), len(executors))
		}
		known := map[string]bool{}
		for _, app := range apps {
			if app == "" || len(app) > 3*longestName || known[app] {
				t.Fatalf("app %q", app)
			}
			known[app] = true
		}
		for _, e := range executors {
			if !known[e.App] || e.ID == "" {
				t.Fatalf("executor %q of %q", e.ID, e.App)
			}
		}
	})
}

// A coordinator refuses a beat with an app's name that it would not show, and the node would be taken for dead.
func TestListLeavesOutWhatIsNoName(t *testing.T) {
	long := strings.Repeat("a", 129)
	for _, line := range []string{long, "app " + long, "\x1b[32mapp", "app x\u200b"} {
		apps, executors, err := parseList("list", "one\n"+line+"\n")
		if len(apps) != 1 || len(executors) > 0 || err == nil {
			t.Errorf("%q: got the apps %q and executors %q (%v), want it left out and told", line, apps, executors, err)
		}
	}
	if apps, executors, err := parseList("list", "app-ö "+long[:128]+"\n"); err != nil || len(apps) != 1 || len(executors) != 1 {
		t.Errorf("got the apps %q and executors %q (%v), want one of each", apps, executors, err)
	}
}

// pretendUnit is a service manager that knows one unit.
type pretendUnit struct {
	activity systemd.Activity
	err      error
	pid      int
	stops    []string
}

func (p *pretendUnit) Look(context.Context, string) (systemd.Activity, error) {
	return p.activity, p.err
}
func (p *pretendUnit) MainPID(context.Context, string) (int, error) { return p.pid, p.err }
func (p *pretendUnit) Stop(_ context.Context, unit string) error {
	p.stops = append(p.stops, "stop "+unit)
	return nil
}
func (p *pretendUnit) Kill(_ context.Context, unit string, s syscall.Signal) error {
	p.stops = append(p.stops, signalName(s)+" "+unit)
	return nil
}

func TestWorkloadOfAUnit(t *testing.T) {
	p := &pretendUnit{}
	w := open(t, Settings{Type: "unit", Unit: "a.service"}, p)
	for _, row := range []struct {
		state string
		err   error
		want  State
	}{
		{"active", nil, Running}, {"activating", nil, Running}, {"deactivating", nil, Running}, {"reloading", nil, Running},
		{"inactive", nil, Done}, {"failed", nil, Done}, {"", errors.New("no bus"), Unknown},
		{"", fmt.Errorf("look up: %w", systemd.ErrNoUnit), Done},
	} {
		p.activity, p.err = systemd.Activity{State: row.state}, row.err
		if got := w.Look(t.Context(), nil, true); got.State != row.want || (got.Trouble == "") != (row.err == nil) {
			t.Errorf("%s, %v: got %s (%s), want %s", row.state, row.err, got.State, got.Trouble, row.want)
		}
	}
	asked, err := w.Terminate(t.Context(), nil)
	err = errors.Join(err, w.Kill(t.Context(), asked))
	if got, want := fmt.Sprint(p.stops), "[stop a.service SIGKILL a.service]"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// Before there is a notice, people are told which signal would be refused.
func TestDoubts(t *testing.T) {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleeper.Process.Kill(); sleeper.Wait() })
	catches := start(t, "", true, "/proc/self/exe", catchRole)
	for pid, bad := range map[int]string{sleeper.Process.Pid: "would die of it", catches.Process.Pid: ""} {
		w := open(t, Settings{Type: "pid_file", PIDFile: string(pidFileOf(t, pid)), Tell: TellSettings{Signal: "SIGPWR"}}, nil)
		doubts := w.Doubts(t.Context())
		if bad == "" {
			if len(doubts) != 0 {
				t.Errorf("got %v, want no doubt", doubts)
			}
			continue
		}
		if len(doubts) != 1 || !doubts[0].Bad || !strings.Contains(doubts[0].Found, bad) {
			t.Errorf("got %v, want that it %s", doubts, bad)
		}
	}
}

// A process that is not there may still start; a program that is not there will not appear.
func TestDoubtsOfActions(t *testing.T) {
	asked := func(err error) func(context.Context, string) (int, error) {
		return func(context.Context, string) (int, error) { return 0, err }
	}
	for want, a := range map[string]Action{
		"[]":                                nil,
		"[] of a program":                   program{Hook{Argv: []string{"/bin/sh"}}},
		"[true /nowhere/drain cannot be":    program{Hook{Argv: []string{"/nowhere/drain"}}},
		"[true /tmp cannot be run":          program{Hook{Argv: []string{"/tmp"}}},
		"[false a.service has no main":      Signal{Signal: syscall.SIGPWR, Target: mainProcess{"a.service", asked(nil)}},
		"[false look up: no such unit":      Unit{Name: "a.service", MainPID: asked(fmt.Errorf("look up: %w", systemd.ErrNoUnit))},
		"[true no bus":                      Unit{Name: "a.service", MainPID: asked(errors.New("no bus"))},
		"[] of a unit whose state is known": Unit{Name: "a.service", MainPID: asked(nil)},
	} {
		got := strings.ReplaceAll(fmt.Sprint(Doubts(t.Context(), a)), "{", "")
		if !strings.HasPrefix(got, strings.SplitN(want, " of ", 2)[0]) {
			t.Errorf("%v: got %s, want %s", a, got, want)
		}
	}
}

func TestWhoHearsWhat(t *testing.T) {
	all := []Word{{Phase: PhaseNoticed}, {Phase: PhaseChanged}, {Phase: PhaseWithdrawn}, {Phase: PhaseDone}, {Phase: PhaseNoticed, Rehearsal: true}}
	for want, tell := range map[string]TellSettings{
		"[false false false false false]": {},
		"[true false false false true]":   {Signal: "SIGPWR"},
		"[true false false false false]":  {Unit: "stop"},
		"[true true true false true]":     {Hook: HookSettings{Command: []string{"/bin/true"}}},
		"[true true true  false true]":    {Webhook: WebhookSettings{URL: "https://a.test"}},
	} {
		w := open(t, Settings{Type: "unit", Unit: "a.service", Tell: tell}, &pretendUnit{})
		var got []bool
		for _, word := range all {
			got = append(got, w.Hears(word))
		}
		if fmt.Sprint(got) != strings.ReplaceAll(want, "  ", " ") {
			t.Errorf("%+v: got %v, want %s", tell, got, want)
		}
	}
}
