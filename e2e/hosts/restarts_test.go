package hosts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An operator restarts agents, and stops one and starts it again. No agent decommissions its node for that, and no block
// moves.
func TestRestartsDecommissionNothing(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("busy")
	id := h.seen().ID
	for range 3 {
		before := h.property("MainPID")
		h.does("systemctl", "restart", "lifeboat-agent")
		f.until(h.is("ACTIVE"))
		if now := h.property("MainPID"); now == before || now == "0" {
			t.Errorf("the agent's PID is %s, and was %s", now, before)
		}
	}
	h.does("systemctl", "stop", "lifeboat-agent")
	f.until(h.is("SHUTDOWN"))
	time.Sleep(lease + time.Second)
	if s := h.seen(); s.State != "SHUTDOWN" {
		t.Errorf("a lease after it was stopped the node is %s, want SHUTDOWN", s.State)
	}
	h.does("systemctl", "start", "lifeboat-agent")
	f.until(h.is("ACTIVE"))
	for _, e := range f.events() {
		switch e.Type {
		case "NodeDecommissioning", "WorkerDecommission", "NodeDecommissioned", "NodeLost", "NodeReplaced":
			t.Errorf("a restart led to %s of %s: %v", e.Type, e.Node, e.Data)
		}
	}
	if got := h.seen().ID; got != id {
		t.Errorf("the node's id is %s, and was %s", got, id)
	}
	if s := h.status(); s.Drain != nil || s.Notice != nil {
		t.Errorf("the agent drains: %+v", s)
	}
}

// A coordinator on a host hangs. systemd's watchdog ends it, and it serves again and knows what it knew.
func TestCoordinatorHangs(t *testing.T) {
	bootable(t)
	f := newField(t)
	first, _, nodes := f.joined("node-a")
	a := nodes[0]
	id := a.seen().ID
	unit := func(name string) string {
		return strings.TrimSpace(first.does("systemctl", "show", "--value", "--property="+name, "lifeboat-coordinator.service"))
	}
	f.until(func() error {
		if got, want := unit("StatusText"), "leads; 1 ACTIVE"; got != want {
			return fmt.Errorf("systemctl status shows %q, want %q", got, want)
		}
		return nil
	})
	before := unit("MainPID")
	first.does("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "lifeboat-coordinator.service")
	f.until(func() error { // 60 s of the watchdog, 10 s until SIGABRT gives way to SIGKILL
		if now := unit("MainPID"); now == before || now == "0" {
			return fmt.Errorf("the coordinator's PID is %s still", now)
		}
		return a.is("ACTIVE")()
	})
	if got := a.seen().ID; got != id {
		t.Errorf("the node's id is %s, and was %s", got, id)
	}
	f.nobodyLost()
}

// inside returns the PID, outside, of the host's process with that PID; 0 when there is none.
func (h *host) inside(pid string) int {
	h.t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.init))
	if err != nil {
		h.t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, dir := range all {
		if of, err := os.Readlink(dir + "/ns/pid"); err != nil || of != ns {
			continue
		}
		text, err := os.ReadFile(dir + "/status")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok && strings.HasSuffix(strings.TrimSpace(ids), "\t"+pid) {
				out, _ := strconv.Atoi(filepath.Base(dir)) // the pattern has numbers only
				return out
			}
		}
	}
	return 0
}

// freezer is the older control group in which a frozen process cannot be killed, like one that hangs on a disk. In newer
// control groups a frozen process can be killed.
const freezer = "/sys/fs/cgroup/freezer"

// A probe of a disk is stuck in the kernel: no signal ends it. The agent is restarted all the same, at once, and then leaves
// with all its blocks.
func TestProbeThatCannotBeKilled(t *testing.T) {
	bootable(t)
	if _, err := os.Stat(filepath.Join(freezer, "cgroup.procs")); err != nil {
		t.Skip("no way here to make a process that cannot be killed: ", err)
	}
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("stuck")
	dir := filepath.Join(freezer, filepath.Base(inside)+"-stuck")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644) }
	t.Cleanup(func() {
		err := put("freezer.state", "THAWED")
		until(t, func() error { return os.Remove(dir) })
		if err != nil {
			t.Error(err)
		}
	})
	agent := h.inside(h.property("MainPID"))
	if err := put("freezer.state", "FROZEN"); err != nil {
		t.Fatal(err)
	}
	var probe int
	f.until(func() error {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", agent)) // any thread may have started it
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for child := range strings.FieldsSeq(string(text)) {
				probe, _ = strconv.Atoi(child)
				return put("cgroup.procs", child)
			}
		}
		return errors.New("the agent has no child that probes a disk")
	})
	began := time.Now()
	h.does("systemctl", "restart", "lifeboat-agent")
	if took := time.Since(began); took > 45*time.Second { // far less than systemd waits for a process that does not end
		t.Errorf("the restart took %s", took)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", probe)); err != nil {
		t.Errorf("the story means nothing: the probe has ended: %v", err)
	}
	f.until(h.is("ACTIVE"))
	f.verb("decommission", h.host, "--timeout", "60s", "--wait").exits(0)
	h.allMoved()
}

// memory is the older control group that bounds the memory of a group of processes. In the newer one no group of ours can
// have a bound beside systemd's.
const memory = "/sys/fs/cgroup/memory"

// The kernel kills the agent amid a drain because memory is short. The drain goes on.
func TestOutOfMemoryMidDrain(t *testing.T) {
	bootable(t)
	if _, err := os.Stat(filepath.Join(memory, "memory.limit_in_bytes")); err != nil {
		t.Skip("no way here to bound the memory of one process: ", err)
	}
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("poor", "drain: {max_bytes_per_second: 512KiB}")
	dir := filepath.Join(memory, filepath.Base(inside)+"-poor")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { until(t, func() error { return os.Remove(dir) }) })
	deadline := h.midDrain()
	before := h.property("MainPID")
	pid := strconv.Itoa(h.inside(before))
	for _, f := range []struct{ file, text string }{{"memory.limit_in_bytes", "262144"}, {"cgroup.procs", pid}} {
		if err := os.WriteFile(filepath.Join(dir, f.file), []byte(f.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.again(before, deadline)
	text, err := os.ReadFile(filepath.Join(dir, "memory.oom_control"))
	if err != nil || !strings.Contains(string(text), "oom_kill 1") {
		t.Errorf("the story means nothing: the kernel killed nobody for want of memory (%v):\n%s", err, text)
	}
	h.f.left(h.node, deadline)
}
