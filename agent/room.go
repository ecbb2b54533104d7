package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/systemd"
)

// roomEvery is how old an answer about a disk's room may be.
const roomEvery = time.Second

// roomGauge is what the heartbeat says of disks and of what landed here: looked up in the background, because a status
// must be ready at once, whatever a disk does.
type roomGauge struct {
	mu     sync.Mutex
	disks  []*api.Disk
	room   int64
	blocks int64
	bytes  int64
}

// watchRoom keeps the gauge fresh until ctx ends.
func (a *Agent) watchRoom(ctx context.Context) error {
	a.countHeld()
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	said := ""
	for {
		a.lookAtDisks(ctx)
		if line := headline(a.status()); line != said {
			said = line
			if err := systemd.Status("%s", line); err != nil {
				a.log.Debug("the service manager was not told", "err", err)
			}
		}
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

// countHeld counts what landed before this process started.
func (a *Agent) countHeld() {
	var all []migration.Held
	for h, err := range a.vault.Held() {
		if err == nil {
			all = append(all, h)
		}
		if len(all) == 1024 {
			a.room.held(all)
			all = all[:0]
		}
	}
	a.room.held(all)
}

func (r *roomGauge) held(blocks []migration.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range blocks {
		r.blocks++
		r.bytes += h.Bytes
	}
}

func (a *Agent) lookAtDisks(ctx context.Context) {
	var found []*api.Disk
	for _, p := range a.diskPaths() {
		s, err := a.meter.Space(ctx, p)
		d := &api.Disk{Path: p, Health: "HEALTHY", TotalBytes: s.TotalBytes, UsableBytes: max(0, s.UsableBytes-int64(a.limits.Load().Receive.ReserveBytes))}
		if err != nil {
			d.Health, d.UsableBytes = "IO_HANG", 0 // no answer is not room
		}
		found = append(found, d)
	}
	room := a.receiver.Room()
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	a.room.disks, a.room.room = found, room
}

// diskPaths are the directories whose disks matter to this node.
func (a *Agent) diskPaths() []string {
	paths := []string{a.cfg.DataDir}
	for _, s := range a.cfg.Stores {
		paths = append(paths, s.Paths...)
	}
	return paths
}

// roomAt says how much may still be written below a path.
func (a *Agent) roomAt(path string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*roomEvery)
	defer cancel()
	s, err := a.meter.Space(ctx, path)
	if err != nil {
		return 0, err
	}
	return max(0, s.UsableBytes-int64(a.limits.Load().Receive.ReserveBytes)), nil
}

// retryNoticed is when a peer may ask a node under notice again: the notice may be withdrawn.
const retryNoticed = 2 * time.Second

// admit says why nothing is taken now: blocks must not land on a machine that goes too.
func (a *Agent) admit(string) (string, time.Duration) {
	if kind := a.noticed(); kind != "" {
		return "this node is under notice itself: " + kind, retryNoticed
	}
	return "", 0
}

// feedWatchdog tells the service manager that the agent is alive, as long as its state can be read: a deadlock would
// stop it.
func (a *Agent) feedWatchdog(ctx context.Context) error {
	every, err := systemd.WatchdogInterval()
	if err != nil {
		a.log.Warn("the watchdog is not fed", "err", err)
	}
	if err != nil || every == 0 {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		a.status()
		if err := systemd.Alive(); err != nil {
			a.log.Warn("the watchdog cannot be fed", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
