package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workloadsView is the part of status -o json about workloads.
type workloadsView struct {
	Workloads []struct {
		Name, State, Trouble string
		Processes            int
	}
	WaitsFor []string `json:"waits_for"`
}

// workload returns nil once the node says that its workload of that name is in one of the states.
func (n *node) workload(name string, states ...string) func() error {
	return func() error {
		s := n.verb("status", "-o", "json")
		if s.code != 0 {
			return errors.New(s.stderr)
		}
		got := "nothing"
		for _, w := range decode[workloadsView](s).Workloads {
			if w.Name == name {
				got = fmt.Sprintf("%s (%s)", w.State, w.Trouble)
				if slices.Contains(states, w.State) {
					return nil
				}
			}
		}
		return fmt.Errorf("%s is %s, want %v", name, got, states)
	}
}

// worker is a process on a node: a shell script. It is waited for as soon as it ends, as init would do.
type worker struct {
	*exec.Cmd
	ended chan struct{}
}

// works starts a worker and waits until it has written its pid file.
func (n *node) works(text string) *worker {
	n.f.t.Helper()
	file := filepath.Join(n.dir, "worker.pid")
	cmd := exec.Command("/bin/sh", "-c", text+"\n", "worker", file, n.dir)
	cmd.SysProcAttr = ownGroup()
	if err := os.MkdirAll(filepath.Join(n.cache(), n.host), 0o755); err != nil {
		n.f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.f.t.Fatal(err)
	}
	w := &worker{cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(w.ended) }()
	n.f.t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-w.ended })
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
			return w
		}
		if time.Now().After(end) {
			n.f.t.Fatal("the worker does not start")
		}
	}
}

func (w *worker) lives() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// linesOf returns the words in a file, which programs wrote there. No file is no words.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	return strings.Fields(string(b))
}

// A node that is ordered to leave tells its worker, and waits until the worker has ended. What the worker writes until
// then moves too. The agent crashes meanwhile; nobody is told twice.
func TestOrderWaitsForARealWorkload(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a")
	f.agent("host-b")
	file := filepath.Join(f.dir, "host-a.yaml")
	told, signals := filepath.Join(a.dir, "told"), filepath.Join(a.dir, "signals")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := string(b) + fmt.Sprintf(`workloads:
  - {name: worker, type: pid_file, pid_file: %s, await: true, every: 200ms, tell: {signal: SIGUSR1}}
  - {name: scheduler, type: exec, command: [/usr/bin/test, -e, %s], tell: {hook: {command: [/bin/sh, -c, 'echo $LIFEBOAT_PHASE >> %s']}}}
`, filepath.Join(a.dir, "worker.pid"), filepath.Join(a.dir, "worker.pid"), told)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	a.fill(10, 1<<20)
	w := a.works(`
		trap 'echo USR1 >> $2/signals; leaving=1' USR1
		echo $$ > $1
		while [ -z "$leaving" ]; do sleep 0.05; done
		for i in 1 2 3 4; do echo "late $i" > $2/cache/host-a/late-$i; done
		while [ ! -e $2/end ]; do sleep 0.05; done
		for i in 5 6 7 8; do echo "late $i" > $2/cache/host-a/late-$i; sleep 0.5; done
		rm $1`)
	f.up()
	f.until(a.workload("worker", "RUNNING"))
	a.verb("simulate", "terminate", "--in", "60s", "--dry-run").exits(0).tells("worker: watched", "SIGUSR1", "waited for")

	f.verb("decommission", "host-a", "--timeout", "60s").exits(0)
	f.until(a.workload("worker", "TOLD"))
	f.until(func() error {
		if s := a.seen(); s.SubState != "WAIT_WORKLOAD" {
			return fmt.Errorf("it is %s %s, want WAIT_WORKLOAD", s.State, s.SubState)
		}
		return nil
	})
	f.verb("decommission", "host-a", "--timeout", "90s").exits(0)
	hears := func(want ...string) func() error {
		return func() error {
			if got := linesOf(t, told); !slices.Equal(got, want) {
				return fmt.Errorf("the hook was told %v, want %v", got, want)
			}
			return nil
		}
	}
	f.until(hears("noticed", "changed"))
	a.verb("status").exits(0).tells("waits for", "workload worker (TOLD", "SINCE")
	a.kill()
	a.start()
	f.until(a.workload("worker", "TOLD"))
	if err := os.WriteFile(filepath.Join(a.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.until(a.is("DECOMMISSIONED"))
	if w.lives() {
		t.Error("the node left before its worker had ended")
	}
	m := a.manifest()
	if m.Blocks.Lost != 0 || m.Blocks.Moved != int64(len(a.wholes()))+8 {
		t.Errorf("got %+v, want all blocks and the eight that the worker wrote late", m.Blocks)
	}
	if got := linesOf(t, signals); len(got) != 1 {
		t.Errorf("the worker got %v, want one signal", got)
	}
	f.until(hears("noticed", "changed"))
	f.verb("recommission", "host-a").exits(0)
	f.until(a.is("ACTIVE"))
	f.until(hears("noticed", "changed", "withdrawn"))
}

// A worker that ignores SIGTERM is killed after its grace, with its children, and what it wrote last still moves in
// time. That holds although the agent crashes between the two signals. A process that only looks like the worker is
// left alone.
func TestStubbornWorkloadIsKilledInTime(t *testing.T) {
	f := newFleet(t)
	a := f.agent("host-a")
	f.agent("host-b")
	a.reconfigure("drain: {tail: 10s}")
	file := filepath.Join(f.dir, "host-a.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := string(b) + fmt.Sprintf(`workloads:
  - {name: worker, type: pid_file, pid_file: %s, await: true, stop: true, grace: 10s, every: 200ms, tell: {signal: SIGPWR}}
`, filepath.Join(a.dir, "worker.pid"))
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	a.fill(4, 1<<20)
	bystander := exec.Command("/bin/sleep", "300")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bystander.Process.Kill(); bystander.Wait() })
	w := a.works(`
		trap '' TERM
		sleep 300 &
		echo $! > $2/child
		echo $$ > $1
		while :; do sleep 0.1; date > $2/cache/host-a/last; done`)
	f.up()

	began := time.Now()
	const lead = 40 * time.Second
	a.verb("decommission", "--self", "--timeout", lead.String()).exits(0)
	// SIGPWR would have killed the worker. That is shown, and does not keep the node from leaving.
	f.until(func() error {
		s := a.verb("status")
		if !strings.Contains(s.stdout, "does not catch SIGPWR") && !strings.Contains(s.stdout, "SIGPWR to the process") {
			return errors.New("the status does not say why the worker was not told:\n" + s.stdout)
		}
		return nil
	})
	// Of the 40 s, 10 s are the tail and 4 s are for the last pass: SIGTERM comes at 15.5 s, SIGKILL at 25.5 s.
	f.until(a.workload("worker", "STOPPING"))
	if took := time.Since(began); took < 15*time.Second {
		t.Errorf("it was asked to end after %s, want 15.5 s", took)
	}
	a.kill()
	a.start()
	if !w.lives() {
		t.Error("it was killed within its grace")
	}
	f.until(a.workload("worker", "KILLED"))
	a.drained()
	if took := time.Since(began); took > lead {
		t.Errorf("drained after %s, its deadline was %s", took, lead)
	}
	<-w.ended
	if child := linesOf(t, filepath.Join(a.dir, "child")); len(child) == 1 {
		if stat, err := os.ReadFile("/proc/" + child[0] + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("what it has started still runs: %s", stat)
		}
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a bystander: %v", err)
	}
	f.until(a.is("DECOMMISSIONED"))
	if m := a.manifest(); m.Blocks.Lost != 0 {
		for _, e := range m.Entries {
			if e.Outcome == "lost" {
				t.Errorf("%s is lost: %s", e.ID, e.Reason)
			}
		}
	}
}
