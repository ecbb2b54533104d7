package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exposureLimits are what `systemd-analyze security` may say at most, in tenths. A sidecar has none: whatever its unit
// forbids is forbidden to the programs that it runs for people.
var exposureLimits = map[string]int{"agent": 25, "coordinator": 15}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	analyze := lookFor(t, "systemd-analyze")
	for _, daemon := range Daemons() {
		file := write(t, daemon)
		out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify %s: %v\n%s", Name(daemon), err, out)
		}
	}
}

func TestExposureStaysLow(t *testing.T) {
	analyze := lookFor(t, "systemd-analyze")
	if help, _ := exec.Command(analyze, "--help").Output(); !strings.Contains(string(help), "--offline") {
		t.Skip("this systemd-analyze judges no file: it has no --offline (since systemd 250)")
	}
	for daemon, limit := range exposureLimits {
		out, err := exec.Command(analyze, "security", "--no-pager", "--offline=yes", "--threshold="+strconv.Itoa(limit), write(t, daemon)).CombinedOutput()
		if err != nil {
			t.Errorf("%s is more exposed than %d tenths: %v\n%s", Name(daemon), limit, err, out)
		}
	}
}

// The agent that may see and signal others is as little exposed as one can be that may.
func TestWorkloadsCostLittle(t *testing.T) {
	analyze := lookFor(t, "systemd-analyze")
	if help, _ := exec.Command(analyze, "--help").Output(); !strings.Contains(string(help), "--offline") {
		t.Skip("this systemd-analyze judges no file: it has no --offline (since systemd 250)")
	}
	more, err := files.ReadFile("workloads.conf")
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, "agent")
	unit, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(append(unit, '\n'), more...), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify with workloads.conf: %v\n%s", err, out)
	}
	const limit = 27 // tenths; without it exposureLimits holds
	out, err := exec.Command(analyze, "security", "--no-pager", "--offline=yes", "--threshold="+strconv.Itoa(limit), file).CombinedOutput()
	if err != nil {
		t.Errorf("with workloads.conf the agent is more exposed than %d tenths: %v\n%s", limit, err, out)
	}
}

// What a host relies on, whether or not there is a systemd to ask.
func TestUnitsKeepTheirPromises(t *testing.T) {
	all := []string{
		"Type=notify", "Restart=always", "RestartSec=1", "StartLimitIntervalSec=0", "OOMScoreAdjust=-900",
		"Wants=network-online.target", "LimitCORE=0", "ConfigurationDirectory=lifeboat", "WantedBy=multi-user.target",
		// A Go program that panics exits with 2, as one does that finds faults in its file.
		"RestartPreventExitStatus=2", "Environment=GOTRACEBACK=crash",
	}
	each := map[string][]string{
		"agent": {
			"WatchdogSec=30", "TimeoutStartSec=300", "TimeoutStopSec=150", "RuntimeDirectory=lifeboat", "StateDirectory=lifeboat", "UMask=0077", "KillMode=process",
			"CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_CHOWN CAP_FOWNER", "PrivateTmp=no",
		},
		"coordinator": {"WatchdogSec=60", "KillMode=mixed", "User=lifeboat", "CapabilityBoundingSet=", "StateDirectory=lifeboat/coordinator", "ProtectSystem=strict", "PrivateMounts=yes"},
		"sidecar":     {"WatchdogSec=30", "TimeoutStopSec=150", "KillMode=mixed", "RuntimeDirectory=lifeboat", "StateDirectory=lifeboat-sidecar"},
	}
	for _, daemon := range Daemons() {
		unit := service(t, daemon)
		has := strings.Split(unit, "\n")
		for _, line := range slices.Concat(all, each[daemon], []string{
			"ConditionPathExists=/etc/lifeboat/" + daemon + ".yaml",
			"ExecStart=" + Binary + " " + daemon + " --config /etc/lifeboat/" + daemon + ".yaml $LIFEBOAT_OPTIONS",
		}) {
			if !slices.Contains(has, line) {
				t.Errorf("%s has no line %s", Name(daemon), line)
			}
		}
		after := orderedAfter(unit)
		want := []string{"network-online.target", "network.target"}
		if daemon != "coordinator" {
			// logind holds the shutdown back for it; engines clear the directories that it carries when they stop.
			want = append(want, "systemd-logind.service", "dbus.service", "remote-fs.target", "spark-worker.service")
		}
		for _, u := range want {
			if !slices.Contains(after, u) {
				t.Errorf("%s is not After=%s, so that may stop first", Name(daemon), u)
			}
		}
	}
}

// Packages that lack a file which was added here would be noticed only on the day.
func TestPackagesHoldEveryFile(t *testing.T) {
	list, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(string(list), "src: systemd/units/"+e.Name()+",") {
			t.Errorf("packaging/nfpm.yaml does not list systemd/units/%s", e.Name())
		}
	}
}

func orderedAfter(unit string) (all []string) {
	for line := range strings.Lines(unit) {
		if names, ok := strings.CutPrefix(line, "After="); ok {
			all = append(all, strings.Fields(names)...)
		}
	}
	return all
}

// write puts a unit into a file, with a program that exists on every host.
func write(t *testing.T, daemon string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), Name(daemon)+".service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(service(t, daemon), Binary, self)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func service(t *testing.T, daemon string) string {
	t.Helper()
	unit, err := Service(daemon)
	if err != nil {
		t.Fatal(err)
	}
	return unit
}

func lookFor(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("no %s on this host: %v", program, err)
	}
	return path
}
