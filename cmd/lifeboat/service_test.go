package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/systemd/units"
)

func TestServiceRunsThisProgramByTheUnitOfThePackages(t *testing.T) {
	for _, daemon := range units.Daemons() {
		got, err := unitTemplate(daemon)
		if err != nil {
			t.Fatal(err)
		}
		if want := "\nExecStart={{Path | cmdEscape}} " + daemon + " --config /etc/lifeboat/" + daemon + ".yaml "; !strings.Contains(got, want) {
			t.Errorf("%s: got no line %q", daemon, want)
		}
		if strings.Contains(got, units.Binary) {
			t.Errorf("%s: got a unit that runs %s, not this program", daemon, units.Binary)
		}
	}
}

func TestServiceRefusesWhatIsNoDaemon(t *testing.T) {
	code, _, stderr := runVerb(t, "service", "start", "janitor")
	if code != exitUsage || !strings.Contains(stderr, `"janitor"`) {
		t.Errorf("got exit code %d, %q, want %d and the name", code, stderr, exitUsage)
	}
}

// An init script of a daemon that does not run exits with 1, as a script does that is not there.
func TestStoppedIsNotUninstalled(t *testing.T) {
	root, exit := t.TempDir(), fmt.Errorf("service: %w", &exec.ExitError{})
	if stopped(root, "unix-systemv", "agent", exit) {
		t.Error("there is no script, and it is taken for one that does not run")
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/init.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/init.d/lifeboat-agent"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if !stopped(root, "unix-systemv", "agent", exit) {
		t.Error("there is a script, and it is taken for none")
	}
	if stopped(root, "linux-openrc", "agent", exit) || stopped(root, "unix-systemv", "agent", nil) || stopped(root, "unix-systemv", "agent", os.ErrPermission) {
		t.Error("another manager's exit, or no exit at all, is taken for a daemon that does not run")
	}
}

// With init scripts, uninstalling a daemon leaves no links to its removed script. Other links stay.
func TestUninstalledLeavesNoLinks(t *testing.T) {
	etc := t.TempDir()
	for link, to := range map[string]string{
		"rc2.d/S50lifeboat-agent": "/etc/init.d/lifeboat-agent", "rc6.d/K02lifeboat-agent": "/etc/init.d/lifeboat-agent",
		"rc3.d/S50lifeboat-agent": "/opt/own/script", "rc2.d/S50lifeboat-coordinator": "/etc/init.d/lifeboat-coordinator",
	} {
		link = filepath.Join(etc, link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := unlinkRunlevels(etc, "lifeboat-agent"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(etc, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(etc, "rc2.d/S50lifeboat-coordinator"), filepath.Join(etc, "rc3.d/S50lifeboat-agent")}; !slices.Equal(left, want) {
		t.Errorf("got %q, want %q", left, want)
	}
}
