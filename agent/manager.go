package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/systemd"
)

// headlineEvery is how often the line that the service manager shows is made anew.
const headlineEvery = time.Second

// tellManager keeps that line up to date until ctx ends, if a service manager listens.
func (a *Agent) tellManager(ctx context.Context) error {
	if !systemd.Listens() {
		return nil
	}
	tick := time.NewTicker(headlineEvery)
	defer tick.Stop()
	var shown systemd.Headline
	for {
		shown.Say(a.log, headline(a.status()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// headline is the line that `systemctl status` shows.
func headline(s *api.Status) string {
	held := fmt.Sprintf("%d blocks held for others", s.HeldBlocks)
	n := s.Notice
	if n == nil {
		return "no notice; " + held
	}
	line := fmt.Sprintf("under notice: %s from %s", n.Kind, n.Source)
	if n.Remaining != nil {
		line += fmt.Sprintf(", %s left", max(0, n.Remaining.AsDuration()).Round(time.Second))
	}
	if d := s.Drain; d != nil {
		line += fmt.Sprintf("; %s: %d of %d blocks moved, %d lost", d.Phase, d.BlocksMoved, d.BlocksTotal, d.BlocksLost)
	}
	return line + "; " + held
}

// feedWatchdog tells the service manager that the agent is alive. Each time it first reads the status, so a deadlock
// silences it.
func (a *Agent) feedWatchdog(ctx context.Context) error {
	systemd.KeepAlive(ctx, a.log, func() { a.status() })
	return nil
}
