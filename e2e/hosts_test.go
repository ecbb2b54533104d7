package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// hostsView is what the coordinator's status shows of the host files in force.
type hostsView struct {
	Hosts struct {
		Excluded int64
		Trouble  string
	}
}

func (f *fleet) hosts() hostsView {
	f.t.Helper()
	return decode[hostsView](f.verb("status", "--coordinator", f.grpc, "-o", "json").exits(0))
}

// again waits until the coordinator answers.
func (f *fleet) again() {
	f.t.Helper()
	f.until(func() error {
		if s := f.verb("nodes"); s.code != 0 {
			return fmt.Errorf("%s", s.stderr)
		}
		return nil
	})
}

// troubleOf is why the coordinator refuses the agent, in the words that the agent shows.
func (n *node) troubleOf() string {
	n.f.t.Helper()
	s := n.verb("status", "-o", "json")
	if s.code != 0 {
		return ""
	}
	return decode[struct{ Coordinator struct{ Trouble string } }](s).Coordinator.Trouble
}

func (n *node) isKeptOut() func() error {
	return func() error {
		if got := n.troubleOf(); !strings.Contains(got, "kept out by the host files: excluded by") {
			return fmt.Errorf("%s: its trouble with the coordinator is %q, want to be told that it is excluded", n.host, got)
		}
		return nil
	}
}

func TestHostFilesDecideWhoStays(t *testing.T) {
	f := newFleet(t, "hosts: {exclude: exclude}")
	f.write("exclude", "# nobody")
	a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
	b.fill(20, 100<<10)
	f.up()

	// Excluded: it drains, the client waits and shows it, and nothing is lost.
	f.write("exclude", "# for repair", "host-b # the fan")
	f.verb("refresh-nodes", "--graceful=120", "--client").exits(0).
		tells("host-b", "waits for", "decommission", "DECOMMISSIONED", "1 excluded by "+f.dir+"/exclude")
	f.until(b.is("DECOMMISSIONED"))
	b.allMoved(b.manifest())
	f.verb("recommission", "host-b").exits(1).tells("excluded by")

	// A broken file is refused whole and its line is named. The last good lists stay in force, even over kill
	// -9.
	f.write("exclude", "host-a", "host-b,host-c")
	f.verb("refresh-nodes").exits(1).tells("exclude:2:", "commas", "stay in force")
	for range 2 {
		if h := f.hosts().Hosts; h.Excluded != 1 || !strings.Contains(h.Trouble, "exclude:2:") {
			t.Errorf("got %+v, want one excluded host, and the fault", h)
		}
		f.until(a.is("ACTIVE"))
		f.until(b.is("DECOMMISSIONED"))
		f.coordinator.kill()
		f.coordinator.start()
		f.again()
	}
	if n := strings.Count(f.verb("events", "-o", "json").exits(0).stdout, "HostsRefused"); n != 1 {
		t.Errorf("got %d events of the refusal, want 1", n)
	}

	// The agent of the excluded node is started anew: it may not join, shows why, and asks again without haste.
	f.until(b.heard)
	b.stop()
	b.start()
	f.until(b.isKeptOut())
	before := b.logged()
	time.Sleep(3 * time.Second)
	if lines := strings.Count(b.logged()[len(before):], "coordinator"); lines > 3 { // lines about its disks may be among them
		t.Errorf("%s logged %d lines about the coordinator in 3 s of being kept out", b.host, lines)
	}

	// The node is no longer excluded: it comes back by itself.
	f.write("exclude", "# nobody")
	f.verb("refresh-nodes", "--graceful").exits(0).tells("recommission", "0 excluded")
	f.until(b.is("ACTIVE"))
	if h := f.hosts().Hosts; h.Trouble != "" || h.Excluded != 0 {
		t.Errorf("got %+v, want no trouble", h)
	}

	// Without --graceful the node is DECOMMISSIONED at once. An exclude file cut to nothing is refused, and so
	// is one that is gone.
	f.write("exclude", "host-c")
	f.verb("refresh-nodes").exits(0).tells("host-c", "force")
	f.until(c.is("DECOMMISSIONED"))
	f.write("exclude", "")
	f.verb("refresh-nodes").exits(1).tells("exclude: is empty")
	f.until(c.is("DECOMMISSIONED"))
}

// heard returns nil once the coordinator has heard the node since it started.
func (n *node) heard() error {
	if n.seen().LastHeartbeat == nil {
		return fmt.Errorf("the coordinator has not heard %s", n.host)
	}
	return nil
}
