package hosts_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shelf is a running machine with the package and nothing else.
func (f *town) shelf(name string) *host {
	f.t.Helper()
	h := f.rack(name)
	h.boot()
	h.install("lifeboat.deb")
	return h
}

// joinCommand matches the line that init prints for the other machines.
var joinCommand = regexp.MustCompile(`(?m)^  lifeboat (join \S+ \S+)$`)

// found makes the machine the fleet's first coordinator, and returns the command that it prints for the other machines. The
// operator's machine uses the operator's certificate from there.
func (h *host) found(options ...string) (join []string) {
	h.t.Helper()
	out := h.does("lifeboat", append([]string{"init"}, options...)...)
	m := joinCommand.FindStringSubmatch(out)
	if m == nil {
		h.t.Fatalf("lifeboat init printed no command for others:\n%s", out)
	}
	h.f.tls = h.disk + "/etc/lifeboat/tls"
	h.f.coordinators = append(h.f.coordinators, h.daemon)
	return strings.Fields(m[1])
}

// Four machines with the package are a secured fleet of a coordinator and three agents after two commands.
func TestFromNothing(t *testing.T) {
	bootable(t)
	f := newField(t)
	first := f.shelf("first")
	others := []*host{f.shelf("node-a"), f.shelf("node-b"), f.shelf("node-c")}
	began := time.Now()
	join := first.found()
	first.does("runuser", "--user", "lifeboat", "--", "test", "-w", "/var/lib/lifeboat/coordinator/tls") // else its certificate ends with the year
	for _, h := range others {
		h.does("lifeboat", join...)
	}
	for _, h := range others {
		f.until(h.is("ACTIVE"))
	}
	t.Logf("a coordinator and three agents took %s", time.Since(began).Round(100*time.Millisecond))
	pid := func() string {
		return first.does("systemctl", "show", "--value", "--property=MainPID", "lifeboat-coordinator")
	}
	before := pid()
	first.does("systemctl", "reload", "lifeboat-coordinator")
	f.until(func() error {
		if !strings.Contains(first.does("journalctl", "--no-pager", "--unit=lifeboat-coordinator"), "certificate read again") {
			return errors.New("the coordinator has not read its certificate again")
		}
		return nil
	})
	if now := pid(); now != before {
		t.Errorf("a reload made of process %s process %s", before, now)
	}
	if s := f.operator.run([]string{"LIFEBOAT_COORDINATOR=" + f.addresses()[0]}, "nodes"); s.code == 0 {
		t.Errorf("somebody without a certificate reads the fleet's nodes:\n%s", s.stdout)
	}
	// Both commands may be run again, and both daemons come back with their hosts.
	again := first.found()
	f.coordinators = f.coordinators[:1]
	others[0].does("lifeboat", again...)
	for _, h := range append([]*host{first}, others...) {
		h.does("systemctl", "is-enabled", map[bool]string{true: "lifeboat-coordinator", false: "lifeboat-agent"}[h == first])
		h.cutPower()
		h.boot()
	}
	for _, h := range others {
		f.until(h.is("ACTIVE"))
	}
	f.nobodyLost()
}

// The package is installed on a machine whose agent is to join while no coordinator answers. The installation does not wait
// for that; the agent does, and joins once it can.
func TestInstalledBeforeTheCoordinatorIsBack(t *testing.T) {
	bootable(t)
	f := newField(t)
	first := f.shelf("first")
	join := first.found()
	first.cutPower()
	h := f.rack("early")
	h.write("etc/lifeboat/token", 0o600, join[2])
	h.write("etc/lifeboat/agent.yaml", 0o644, "coordinators: ["+first.on.ip+":7411]", "join: {token_file: token}", "cloud: {provider: ec2}")
	h.boot()
	began := time.Now()
	h.install("lifeboat.deb")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the installation took %s", took.Round(time.Second))
	}
	if state := h.property("ActiveState"); state != "activating" {
		t.Errorf("the unit is %s, want it activating", state)
	}
	first.boot()
	f.until(h.is("ACTIVE"))
}

// The first machine is a node as well. Both daemons run there, each with a setting that the other does not have.
func TestCoordinatorAndAgentOnOneHost(t *testing.T) {
	bootable(t)
	f := newField(t)
	h := f.shelf("both")
	h.write("etc/lifeboat/agent.d/10-room.yaml", 0o644, "receive: {reserve_bytes: 16MiB}")
	h.write("etc/lifeboat/coordinator.d/10-lease.yaml", 0o644, "lease: 20s")
	h.found("--agent")
	f.until(h.is("ACTIVE"))
	h.does("systemctl", "is-active", "lifeboat-agent", "lifeboat-coordinator")
}

// Three hosts with the package are the coordinators. The leader's power is cut amid a drain, and what it decided stands.
func TestThreeCoordinatorHosts(t *testing.T) {
	bootable(t)
	f := newField(t)
	var all []*host
	var peers []string
	for i := range 3 {
		h := f.rack(fmt.Sprintf("c%d", i+1))
		all = append(all, h)
		f.coordinators = append(f.coordinators, h.daemon)
		peers = append(peers, fmt.Sprintf("{name: %s, address: %q}", h.host, h.on.ip+":7411"))
		f.operator.run(nil, "tls", "issue", "--dir", f.tls, "--coordinator", h.host).exits(0)
	}
	for _, h := range all {
		h.certify(h.host)
		h.write("etc/lifeboat/coordinator.yaml", 0o644, fmt.Sprintf("tls: {ca: ca.pem, cert: %[1]s.pem, key: %[1]s.key}", h.host),
			"peers: ["+strings.Join(peers, ", ")+"]", fmt.Sprintf("heartbeat: %s\nlease: %s", pace, lease))
		h.boot()
		// The package makes the user, and only then can the key belong to it: until then the unit tries again now and then.
		h.install("lifeboat.deb")
		h.does("chown", "lifeboat:", "/etc/lifeboat/"+h.host+".key")
	}
	for _, name := range []string{"host-a", "host-b", "host-c"} {
		f.agent(name, slowly)
	}
	f.until(f.nodes[0].is("ACTIVE"))
	f.settled()
	a, deadline := f.leave()
	leader := f.leader()
	for _, h := range all {
		if h.daemon == leader {
			h.cutPower()
			defer h.boot()
		}
	}
	f.until(func() error {
		if f.leader() == leader {
			return fmt.Errorf("%s has no power and leads", leader.on.name)
		}
		return nil
	})
	f.sameInstant("after the failover", a.seen().Deadline, deadline)
	f.left(a, deadline)
}
