// Package systemd is the way to the service manager and to logind: it tells the manager how this process is doing, holds
// a shutdown back until the node is empty, asks whether the host goes down, and starts, stops and looks at units.
//
// It connects to nothing before it is asked. Every question is bounded by its context. Where there is no systemd (a
// container, another init) the answer is an error or nothing at all, never a wait.
//
// The notifications (Ready, Starting, Stopping, Alive, Status) do nothing and return nil where no manager listens (no
// NOTIFY_SOCKET in the environment), so a daemon calls them without asking. Their error means that systemd is there and was
// not reached: worth a line in the log, never a reason to end. They can block while systemd is too busy to take messages, so
// call them from a goroutine that may wait, and with no lock held.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Listens reports whether a service manager wants notifications.
func Listens() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Ready says that the daemon serves. A unit of Type=notify counts as started from here on.
func Ready() error { return notify(daemon.SdNotifyReady) }

// Starting says that the start takes so much longer, counted from now. Without it the manager gives up on a start after
// TimeoutStartSec.
func Starting(more time.Duration) error {
	return notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()))
}

// Stopping says that the daemon has begun to end. What TimeoutStopSec allows counts from the stop, not from here.
func Stopping() error { return notify(daemon.SdNotifyStopping) }

// Alive feeds the watchdog. It belongs in the loop whose stalling should get the process killed and started again.
func Alive() error { return notify(daemon.SdNotifyWatchdog) }

// Status sets the line that `systemctl status` shows.
func Status(format string, args ...any) error {
	// A message is lines of KEY=VALUE, so a line end in the text could set another key.
	line := strings.Join(strings.FieldsFunc(fmt.Sprintf(format, args...), lineEnd), " ")
	return notify("STATUS=" + line)
}

// Headline keeps that line up to date. Its zero value is ready, and one goroutine uses it.
type Headline struct{ said string }

// Say tells the manager the line if it is not the one that it was told last.
func (h *Headline) Say(log *slog.Logger, line string) {
	if line == h.said {
		return
	}
	h.said = line
	if err := Status("%s", line); err != nil {
		log.Debug("the service manager was not told", "err", err)
	}
}

func lineEnd(r rune) bool { return r == '\n' || r == '\r' || r == 0 }

// WatchdogInterval is how often Alive should be called: half of what the unit's WatchdogSec allows, as
// sd_watchdog_enabled(3) advises. 0: no watchdog watches this process.
func WatchdogInterval() (time.Duration, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("read the watchdog's settings: %w", err)
	}
	return limit / 2, nil
}

// KeepAlive feeds the watchdog, if there is one, until ctx ends. It calls alive before each time: while alive does not
// return, as in a deadlock, the watchdog is not fed.
func KeepAlive(ctx context.Context, log *slog.Logger, alive func()) {
	every, err := WatchdogInterval()
	if err != nil {
		log.Warn("the watchdog is not fed", "err", err)
	}
	if err != nil || every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		alive()
		if err := Alive(); err != nil {
			log.Warn("the watchdog cannot be fed", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		key, _, _ := strings.Cut(state, "=")
		return fmt.Errorf("tell systemd %s: %w", key, err)
	}
	return nil
}
