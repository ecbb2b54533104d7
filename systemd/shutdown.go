package systemd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
)

// Shutdown says whether the host goes down, and how.
type Shutdown struct {
	Down bool
	How  How
}

// How is the way in which a host goes down, in logind's words (handle_action_table in logind-action.c). Empty: not known.
type How string

const (
	HowPowerOff   How = "poweroff"
	HowHalt       How = "halt"
	HowReboot     How = "reboot"
	HowKexec      How = "kexec"
	HowSoftReboot How = "soft-reboot" // everything but the kernel starts anew
	HowExit       How = "exit"        // the manager of a container ends
)

// ComesBack reports whether the host comes up again by itself.
func (h How) ComesBack() bool { return h == HowReboot || h == HowKexec || h == HowSoftReboot }

// targets are the units of systemd.special(7) that take the host down. A queued start of one of them is what will happen.
var targets = map[string]How{
	"poweroff.target":    HowPowerOff,
	"halt.target":        HowHalt,
	"reboot.target":      HowReboot,
	"kexec.target":       HowKexec,
	"soft-reboot.target": HowSoftReboot,
	"exit.target":        HowExit,
}

// GoingDown reports whether the host goes down at this moment, so that a process that is told to stop knows why. It asks
// systemd's queue of jobs, which also has shutdowns that did not go through logind (a container's poweroff signal,
// `systemctl start poweroff.target`); under another init it asks for the runlevel. An error, such as ErrNotBooted, says why
// that is not known.
//
// Two files say nothing about now: /run/nologin is there while the host boots and for five minutes before a planned
// shutdown, and /run/systemd/shutdown/scheduled is a plan that may be called off.
func GoingDown(ctx context.Context) (Shutdown, error) {
	m, err := OpenManager(ctx)
	if errors.Is(err, ErrNotBooted) {
		return runlevel(ctx)
	}
	if err != nil {
		return Shutdown{}, err
	}
	defer m.Close()
	jobs, err := m.conn.ListJobsContext(ctx)
	if err != nil {
		return Shutdown{}, fmt.Errorf("list systemd's jobs: %w", err)
	}
	if s := inQueue(jobs); s.Down {
		return s, nil
	}
	state, err := m.state(ctx)
	return Shutdown{Down: state == "stopping"}, err
}

// inQueue reports whether the queue of jobs takes the host down. Every way down starts shutdown.target, and the target of
// the way stays queued until the end; isolating rescue.target stops services, but keeps the host up.
func inQueue(jobs []sdbus.JobStatus) (s Shutdown) {
	for _, j := range jobs {
		if j.JobType != "start" {
			continue
		}
		if how, ok := targets[j.Unit]; ok {
			return Shutdown{Down: true, How: how}
		}
		s.Down = s.Down || j.Unit == "shutdown.target"
	}
	return s
}

// runlevel asks an init of the System V kind.
func runlevel(ctx context.Context) (Shutdown, error) {
	out, err := exec.CommandContext(ctx, "runlevel").Output()
	if err != nil {
		return Shutdown{}, fmt.Errorf("%w, and there is no runlevel: %w", ErrNotBooted, err)
	}
	return parseRunlevel(string(out))
}

// parseRunlevel reads the output of runlevel(8): the level before and the one now. 0 is halt, 6 is reboot.
func parseRunlevel(text string) (Shutdown, error) {
	words := strings.Fields(text)
	if len(words) != 2 {
		return Shutdown{}, fmt.Errorf("%w, and the runlevel is %q", ErrNotBooted, strings.TrimSpace(text))
	}
	switch words[1] {
	case "0":
		return Shutdown{Down: true, How: HowPowerOff}, nil
	case "6":
		return Shutdown{Down: true, How: HowReboot}, nil
	default:
		return Shutdown{}, nil
	}
}
