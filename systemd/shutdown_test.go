package systemd

import (
	"errors"
	"testing"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
)

func TestInQueue(t *testing.T) {
	start := func(units ...string) (jobs []sdbus.JobStatus) {
		for _, u := range units {
			jobs = append(jobs, sdbus.JobStatus{Unit: u, JobType: "start"})
		}
		return jobs
	}
	for name, row := range map[string]struct {
		jobs []sdbus.JobStatus
		want Shutdown
	}{
		"nothing":             {nil, Shutdown{}},
		"a restart of ours":   {[]sdbus.JobStatus{{Unit: "lifeboat.service", JobType: "restart"}}, Shutdown{}},
		"poweroff":            {start("shutdown.target", "umount.target", "systemd-poweroff.service", "poweroff.target"), Shutdown{true, HowPowerOff}},
		"reboot":              {start("shutdown.target", "reboot.target"), Shutdown{true, HowReboot}},
		"kexec":               {start("kexec.target"), Shutdown{true, HowKexec}},
		"soft reboot":         {start("soft-reboot.target"), Shutdown{true, HowSoftReboot}},
		"a container's end":   {start("exit.target"), Shutdown{true, HowExit}},
		"a way not known":     {start("shutdown.target"), Shutdown{Down: true}},
		"rescue":              {start("rescue.target"), Shutdown{}},
		"called off":          {[]sdbus.JobStatus{{Unit: "poweroff.target", JobType: "stop"}}, Shutdown{}},
		"something by chance": {start("poweroff.target.service"), Shutdown{}},
	} {
		if got := inQueue(row.jobs); got != row.want {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}

func TestParseRunlevel(t *testing.T) {
	for text, want := range map[string]Shutdown{
		"N 5\n": {}, "N 3": {}, "3 S\n": {}, "5 0\n": {true, HowPowerOff}, "N 6\n": {true, HowReboot},
	} {
		if got, err := parseRunlevel(text); got != want || err != nil {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "unknown\n", "0", "5 0 6"} {
		if got, err := parseRunlevel(text); !errors.Is(err, ErrNotBooted) || got.Down {
			t.Errorf("%q: got %+v, %v, want not to know", text, got, err)
		}
	}
}

func TestUnitIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/lifeboat.service\n":                                         "lifeboat.service",
		"0::/system.slice/lifeboat.service/hooks\n":                                   "lifeboat.service",
		"0::/system.slice/system-spark.slice/spark@a:b.service\n":                     "spark@a:b.service",
		"0::/user.slice/user-0.slice/session-1.scope\n":                               "session-1.scope",
		"0::/user.slice/user-7.slice/user@7.service/app.slice/x.service\n":            "user@7.service",
		"4:memory:/elsewhere.service\n1:name=systemd:/system.slice/a.service\n0::/\n": "a.service",
		"0::/\n":                            "",
		"0::/init.scope\n":                  "init.scope",
		"0::/kubepods/besteffort/pod-1/x\n": "",
		"":                                  "",
		"0\n0:\n":                           "",
		"0::/../../lifeboat.service\n":      "",
	} {
		if got, ok := unitIn(text); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, ok, want)
		}
	}
}

func FuzzUnitIn(f *testing.F) {
	f.Add("0::/system.slice/lifeboat.service\n")
	f.Fuzz(func(t *testing.T, text string) {
		if name, ok := unitIn(text); ok != (name != "") {
			t.Errorf("%q: got %q, %v", text, name, ok)
		}
	})
}

func TestFromUSec(t *testing.T) {
	for usec, want := range map[uint64]time.Duration{0: 0, 5_000_000: 5 * time.Second, 1<<64 - 1: Forever, 1 << 63: Forever} {
		if got := fromUSec(usec); got != want {
			t.Errorf("%d: got %v, want %v", usec, got, want)
		}
	}
}

func TestOurs(t *testing.T) {
	for i, want := range map[Inhibitor]bool{
		{What: "shutdown", Who: who, Mode: "delay"}:        true,
		{What: "sleep:shutdown", Who: who, Mode: "delay"}:  true,
		{What: "shutdown", Who: who, Mode: "block"}:        false,
		{What: "sleep", Who: who, Mode: "delay"}:           false,
		{What: "shutdown", Who: "somebody", Mode: "delay"}: false,
	} {
		if got := i.ours(); got != want {
			t.Errorf("%+v: got %v, want %v", i, got, want)
		}
	}
}
