package hosts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The cloud announces that the machine goes, and takes it then. Every block is elsewhere.
func TestInterruption(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("spot")
	end := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	h.cloud.Interrupt("terminate", end)
	m := h.drained()
	if late := time.Since(end); late > 0 {
		t.Errorf("the drain ended %s after the machine was to go", late)
	}
	if m.Incident.Kind != "terminate" || m.Incident.Source != "ec2" {
		t.Errorf("got an incident of kind %s from %s, want terminate from ec2", m.Incident.Kind, m.Incident.Source)
	}
	f.sameInstant("the manifest", m.Incident.Deadline, moment{end, end})
	f.until(h.is("DECOMMISSIONED"))
	h.cutPower()
	h.allMoved()
	h.readBack()
	f.nobodyLost()
}

// A person switches the machine off. The inhibitor holds that up until the blocks are at the peers.
func TestPoweroff(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("desk", "drain: {max_bytes_per_second: 1MiB}")
	began := time.Now()
	h.does("systemctl", "poweroff")
	h.goesDown()
	t.Logf("it was off %s after it was told to be", time.Since(began).Round(100*time.Millisecond))
	f.until(h.is("DECOMMISSIONED"))
	if m := h.allMoved(); m.Incident.Kind != "shutdown" {
		t.Errorf("got an incident of kind %s, want shutdown", m.Incident.Kind)
	}
	h.readBack()
	f.nobodyLost()
}

// midDrain begins a drain of a host with an hour of time, and returns while it is under way.
func (h *host) midDrain() (deadline moment) {
	h.t.Helper()
	deadline = h.f.verb("decommission", h.host, "--timeout", "1h", "--reason", "the story's").exits(0).gives(time.Hour)
	h.underWay(2)
	return deadline
}

// again waits until another process than that of PID before is the agent and goes on with the drain. It fails the story if
// the deadline has moved.
func (h *host) again(before string, deadline moment) {
	h.t.Helper()
	h.f.until(func() error {
		if now := h.property("MainPID"); now == before || now == "0" {
			return fmt.Errorf("the agent's PID is %s still", now)
		}
		if s := h.status(); s.Notice == nil || s.Drain == nil {
			return fmt.Errorf("the agent does not drain: %+v", s)
		}
		return nil
	})
	h.f.sameInstant("after the restart", h.status().Notice.Deadline, deadline)
}

// The package is upgraded amid a drain. The drain goes on.
func TestUpgradeMidDrain(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("old", slowly)
	deadline := h.midDrain()
	before := h.property("MainPID")
	h.install("newer.deb")
	h.again(before, deadline)
	f.left(h.node, deadline)
}

// kill -9 ends the agent amid a drain; the next one hangs until the watchdog ends it. The drain goes on.
func TestAgentKilledMidDrain(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("host", "drain: {max_bytes_per_second: 128KiB}")
	deadline := h.midDrain()
	before := h.property("MainPID")
	h.signal("KILL")
	h.again(before, deadline)

	before = h.property("MainPID")
	h.signal("STOP")
	h.again(before, deadline) // 30 s of the watchdog, 10 s until SIGABRT gives way to SIGKILL
	if result := h.does("journalctl", "--unit=lifeboat-agent", "--no-pager"); !strings.Contains(result, "Watchdog timeout") {
		t.Errorf("the journal does not tell of a watchdog:\n%s", lastLines(result))
	}
	h.does("sed", "-i", "s/128KiB/0/", "/etc/lifeboat/agent.yaml")
	h.does("systemctl", "reload", "lifeboat-agent")
	f.left(h.node, deadline)
}

// signal sends a signal to the agent alone, not to its children.
func (h *host) signal(name string) {
	h.t.Helper()
	h.does("systemctl", "kill", "--kill-whom=main", "--signal="+name, "lifeboat-agent.service")
}

// The wire is pulled amid a drain, for four seconds.
func TestCutLinkMidDrain(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("host", slowly)
	deadline := h.midDrain()
	h.on.unplug()
	time.Sleep(4 * time.Second)
	h.on.plug()
	f.left(h.node, deadline)
}

// All coordinators are killed amid a drain. It ends without them, and they hear of it when they are back.
func TestCoordinatorsLostMidDrain(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("host", slowly)
	deadline := h.midDrain()
	for _, c := range f.coordinators {
		c.kill()
	}
	h.drained()
	for _, c := range f.coordinators {
		c.start()
	}
	f.left(h.node, deadline)
}

// The leader of three coordinators is killed amid a drain, and then the next leader.
func TestLeadersLostMidDrain(t *testing.T) {
	bootable(t)
	f := newTown(t, 2)
	f.settled()
	h := f.newHost("host", slowly)
	deadline := h.midDrain()
	for range 2 {
		leader := f.leader()
		leader.kill()
		if now := f.leader(); now == leader {
			t.Errorf("%s is dead and leads", leader.on.name)
		}
		f.sameInstant("after the failover", h.seen().Deadline, deadline)
		leader.start()
	}
	f.left(h.node, deadline)
}

// The leaving host's /var/lib/lifeboat is full to the last byte, and so is one peer's amid the drain. Blocks that have no
// room there go to the other peer.
func TestFullDisks(t *testing.T) {
	bootable(t)
	const small = "--tmpfs=/var/lib/lifeboat:mode=0750,size=6m"
	f := newTown(t, 1)
	f.settled()
	tiny := f.rack("tiny")
	tiny.configure("receive: {reserve_bytes: 1MiB}", "disks: {every: 1s}")
	tiny.boot(small)
	tiny.install("lifeboat.deb")
	h := f.rack("full")
	h.configure(slowly)
	h.fill(16, 8<<20)
	h.boot(small)
	h.install("lifeboat.deb")
	f.until(h.knows(2))
	h.fillDisk()
	h.midDrain()
	tiny.fillDisk()
	// The ledger has no room on the leaving host: it tells only its totals, and the peers tell where the blocks are.
	if m := h.drained(); m.Blocks.Moved != int64(len(h.blocks)) || m.Blocks.Lost != 0 {
		t.Errorf("got %+v, want %d moved and none lost", m.Blocks, len(h.blocks))
	}
	f.until(h.is("DECOMMISSIONED"))
	h.cutPower()
	h.readBack()
	f.nobodyLost()
	if s := tiny.seen(); s.State != "ACTIVE" {
		t.Errorf("the peer whose disk is full is %s, want ACTIVE", s.State)
	}
}

// fillDisk leaves no byte free in the agent's data_dir.
func (h *host) fillDisk() {
	h.t.Helper()
	if s := h.try("dd", "if=/dev/zero", "of=/var/lib/lifeboat/junk", "bs=4k"); !strings.Contains(s.stderr, "No space left") {
		h.t.Fatalf("the disk of %s is not full: %s", h.host, s.stderr)
	}
}

// The only coordinator is a host with the package too. Its power is cut amid a drain, and what it decided is there when it
// is back.
func TestCoordinatorsHostLosesPower(t *testing.T) {
	bootable(t)
	f := newField(t)
	c := f.rack("c1")
	f.coordinators = []*daemon{c.daemon}
	f.operator.run(nil, "tls", "issue", "--dir", f.tls, "--coordinator", "c1").exits(0)
	c.certify("c1")
	c.write("etc/lifeboat/coordinator.yaml", 0o644, "tls: {ca: ca.pem, cert: c1.pem, key: c1.key}",
		fmt.Sprintf("heartbeat: %s", pace), fmt.Sprintf("lease: %s", lease))
	c.boot()
	c.install("lifeboat.deb")
	c.does("chown", "lifeboat:", "/etc/lifeboat/c1.key")
	c.does("systemctl", "restart", "lifeboat-coordinator")
	for _, name := range []string{"host-a", "host-b", "host-c"} {
		f.agent(name, slowly)
	}
	f.settled()
	a, deadline := f.leave()
	c.cutPower()
	time.Sleep(time.Second)
	c.boot()
	f.until(func() error {
		if s := f.verb("nodes"); s.code != 0 {
			return fmt.Errorf("%s", s.stderr)
		}
		return nil
	})
	f.left(a, deadline)
}
