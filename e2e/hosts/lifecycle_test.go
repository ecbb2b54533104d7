package hosts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// there fails the story unless each path exists on the disk, or, if want is false, none does.
func (h *host) there(when string, want bool, paths ...string) {
	h.t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(filepath.Join(h.disk, path)); (err == nil) != want {
			h.t.Errorf("%s: /%s: is it there: got %v, want %v", when, path, err == nil, want)
		}
	}
}

// unit fails the story unless the agent's unit is in these states.
func (h *host) unit(when, active, enabled string) {
	h.t.Helper()
	for verb, want := range map[string]string{"is-active": active, "is-enabled": enabled} {
		if got := strings.TrimSpace(h.try("systemctl", verb, "lifeboat-agent").stdout); got != want {
			h.t.Errorf("%s: systemctl %s: got %q, want %q", when, verb, got, want)
		}
	}
}

// The package is installed, replaced by a newer and an older one, removed, installed again, and purged. What runs, what
// starts with the host and which files stay is as its manual says.
func TestLifeOfThePackage(t *testing.T) {
	bootable(t)
	const (
		older, newer = "lifeboat.deb", "newer.deb"
		settings     = "etc/lifeboat/agent.yaml"
		environment  = "etc/lifeboat/environment"
		program      = "usr/bin/lifeboat"
		kept         = "var/lib/lifeboat"
	)
	f := newTown(t, 0)
	h := f.rack("host")
	h.configure()
	h.write("etc/lifeboat/sidecar.yaml", 0o644, "cloud: {provider: ec2}", "actions: [{name: engine, hook: {command: [/bin/true]}}]")
	h.boot()
	version := func(when, want string) {
		t.Helper()
		if got := strings.TrimSpace(h.does("dpkg-query", "--show", "--showformat=${Version}", "lifeboat")); got != want {
			t.Errorf("%s: got version %s, want %s", when, got, want)
		}
	}
	runs := func(when string) {
		t.Helper()
		f.until(h.is("ACTIVE"))
		h.unit(when, "active", "enabled")
	}

	h.install(older)
	runs("installed")
	id := h.seen().ID
	h.does("sh", "-ec", "echo '# mine' >> /"+environment)

	before := h.property("MainPID")
	h.install(newer)
	runs("upgraded")
	version("upgraded", "1.0.1")
	if now := h.property("MainPID"); now == before {
		t.Error("upgraded: the old program still runs")
	}
	h.does("grep", "-q", "# mine", "/"+environment)

	h.does("systemctl", "stop", "lifeboat-agent")
	h.install(older)
	version("downgraded", "1.0.0")
	h.unit("downgraded while it was stopped", "inactive", "enabled")
	h.does("systemctl", "disable", "lifeboat-agent")
	h.install(newer)
	h.unit("upgraded while it was stopped and disabled", "inactive", "disabled")
	h.does("systemctl", "is-active", "lifeboat-sidecar")
	h.does("systemctl", "stop", "lifeboat-sidecar")
	h.does("systemctl", "mask", "lifeboat-agent")
	h.install(older)
	h.unit("downgraded while it was masked", "inactive", "masked")
	if s := h.try("systemctl", "is-active", "lifeboat-sidecar"); s.code == 0 {
		t.Error("downgraded: the sidecar runs, which was stopped by hand")
	}
	h.does("systemctl", "unmask", "lifeboat-agent")
	h.install(newer)
	h.does("systemctl", "enable", "--now", "lifeboat-agent")
	runs("enabled again")
	h.does("grep", "-q", "# mine", "/"+environment)

	h.does("dpkg", "--remove", "lifeboat")
	f.until(h.is("SHUTDOWN"))
	h.there("removed", false, program, "usr/lib/systemd/system/lifeboat-agent.service", "usr/share/doc/lifeboat")
	h.there("removed", true, settings, environment, kept+"/machine")

	h.install(newer)
	runs("installed again")
	if got := h.seen().ID; got != id {
		t.Errorf("installed again: the node's id is %s, and was %s", got, id)
	}

	h.does("dpkg", "--purge", "lifeboat")
	f.until(h.is("SHUTDOWN"))
	h.there("purged", false, program, kept, environment, "run/lifeboat", "usr/lib/lifeboat")
	h.there("purged", true, settings, "etc/lifeboat/host.key")
	left := h.does("sh", "-c", "find / -xdev -name '*lifeboat*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/media/*' -not -path '/var/log/*' -not -path '/run/systemd/propagate*'")
	if got := strings.TrimSpace(left); got != "/etc/lifeboat" {
		t.Errorf("purged: there is %q still, want what people put into /etc/lifeboat alone", got)
	}

	h.install(older)
	runs("installed after a purge")
	if n := count(f.events(), "NodeDecommissioned", ""); n != 0 {
		t.Errorf("%d nodes were decommissioned by a package", n)
	}
	f.nobodyLost()
}

// systemd-analyze finds the units no more exposed than they promise to be.
func TestExposure(t *testing.T) {
	bootable(t)
	f := newTown(t, 0)
	h := f.rack("host")
	h.boot()
	h.install("lifeboat.deb")
	for unit, tenths := range map[string]string{"lifeboat-agent.service": "25", "lifeboat-coordinator.service": "20"} {
		s := h.try("systemd-analyze", "security", "--no-pager", "--threshold="+tenths, unit)
		lines := strings.Split(strings.TrimSpace(s.stdout), "\n")
		t.Logf("%s: %s", unit, lines[len(lines)-1])
		if s.code != 0 {
			t.Errorf("%s is more exposed than %s tenths:\n%s%s", unit, tenths, s.stdout, s.stderr)
		}
	}
}
