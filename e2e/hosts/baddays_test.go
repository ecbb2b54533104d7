package hosts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The package is installed and nothing is configured: each unit says what it waits for, and none starts.
func TestNothingConfigured(t *testing.T) {
	bootable(t)
	f := newTown(t, 0)
	h := f.rack("bare")
	h.boot()
	h.install("lifeboat.deb")
	for _, unit := range []string{"agent", "coordinator", "sidecar"} {
		s := h.try("systemctl", "status", "--no-pager", "lifeboat-"+unit+".service")
		if want := "ConditionPathExists=/etc/lifeboat/" + unit + ".yaml was not met"; !strings.Contains(s.stdout, want) {
			t.Errorf("systemctl status: got %s%s, want it to tell %q", s.stdout, s.stderr, want)
		}
	}
	if got := h.property("NRestarts"); got != "0" {
		t.Errorf("the agent was restarted %s times, want 0", got)
	}
	if s := h.does("systemctl", "--failed", "--plain", "--no-legend"); strings.Contains(s, "lifeboat") {
		t.Errorf("a unit failed:\n%s", s)
	}
}

// A key that others may read is refused, and its file is named. The unit tries again now and then, so nobody need do more
// than change the mode.
func TestKeyOfEverybody(t *testing.T) {
	bootable(t)
	f := newTown(t, 0)
	h := f.rack("open")
	h.configure()
	h.boot()
	h.does("chmod", "644", "/etc/lifeboat/open.key")
	h.install("lifeboat.deb")
	f.until(func() error { return h.journalTells("/etc/lifeboat/open.key") })
	if s := f.verb("nodes", "-o", "json").exits(0).stdout; strings.Contains(s, "open") {
		t.Errorf("the node is in the fleet, with a key that everybody may read: %s", s)
	}
	h.does("chmod", "600", "/etc/lifeboat/open.key")
	f.until(h.is("ACTIVE"))
}

// When the agent starts, /etc is read-only, as on hosts whose system is an image, and its directory in /var is full.
func TestReadOnlyEtcAndFullVar(t *testing.T) {
	bootable(t)
	f := newTown(t, 1)
	f.settled()
	h := f.rack("sealed")
	h.configure()
	h.fill(4, 1<<20)
	h.boot("--tmpfs=/var/lib/lifeboat:mode=0750,size=6m")
	h.install("lifeboat.deb")
	f.until(h.is("ACTIVE"))
	h.does("sh", "-ec", "mount --bind /etc /etc; mount -o remount,ro,bind /etc")
	h.fillDisk()
	before := h.property("MainPID")
	h.does("systemctl", "restart", "lifeboat-agent")
	f.until(h.is("ACTIVE"))
	f.until(h.knows(1))
	if now := h.property("MainPID"); now == before || now == "0" {
		t.Errorf("the agent's PID is %s, and was %s", now, before)
	}
	f.verb("decommission", h.host, "--timeout", "60s", "--wait").exits(0)
	h.cutPower()
	h.readBack()
}

// Two machines have one name and one certificate. The one that came last is the node, and stays it; the other is told why
// it is not.
func TestTwoHostsOfOneName(t *testing.T) {
	bootable(t)
	f := newTown(t, 1)
	f.settled()
	first, second := f.rack("twin"), f.rack("double")
	for _, h := range []*host{first, second} {
		h.host = "twin"
		h.write("etc/hostname", 0o644, h.host)
		h.configure()
		h.boot()
		h.install("lifeboat.deb")
		f.until(func() error {
			if got, want := h.seen().Incarnation, h.status().Incarnation; got != want || got == "" {
				return fmt.Errorf("the node's incarnation is %q at the coordinator, want %q", got, want)
			}
			return nil
		})
	}
	time.Sleep(lease)
	if n := count(f.events(), "NodeReplaced", "twin"); n != 1 {
		t.Errorf("two machines of one name took each other's place %d times, want 1", n)
	}
	if got := first.status().Coordinator.Trouble; got == "" {
		t.Error("the machine whose name another has taken does not say that it is in trouble")
	}
}
