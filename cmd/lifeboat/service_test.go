package main

import (
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
