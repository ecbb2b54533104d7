package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// A leader whose disk hangs decides nothing, and yet raft lets it lead: raft's main loop waits for the disk, while its connections to the
// others go on sending heartbeats. So watchDisk looks at the disk from outside raft. When it hangs, the coordinator's raft connections
// are silenced until the disk answers again; the others hold an election, and callers are sent to them.

// stopPatience is how long a coordinator may take to stop, beside its log: to hand the lead over, to end calls, and to find out that the
// disk hangs. Service managers give it 90 s (DefaultTimeoutStopSec of systemd-system.conf(5)).
const stopPatience = 4 * raftstore.HangAfter

// outlast returns what wait returns. Once ctx has ended it waits no longer than stopPatience: a goroutine may hang on a file of data_dir.
func outlast(ctx context.Context, wait func() error) error {
	waited := make(chan error, 1)
	go func() { waited <- wait() }()
	select {
	case err := <-waited:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-waited:
		return err
	case <-time.After(stopPatience):
		return fmt.Errorf("coordinator: not all of it has ended after %s: does the disk of data_dir hang?", stopPatience)
	}
}

// watchDisk keeps a coordinator whose disk hangs from holding the lead, until ctx ends.
func (l *ledger) watchDisk(ctx context.Context, log *slog.Logger) error {
	hung := false
	var number uint64 // of the term that was broken off
	return every(ctx, raftstore.HangPace, func() {
		err := l.store.Hangs()
		if hung == (err != nil) {
			return
		}
		if hung = err != nil; hung {
			log.Error("the disk of data_dir hangs, and this coordinator decides nothing until it answers: look at it, or replace it", "err", err)
		} else {
			log.Info("the disk of data_dir answers again")
		}
		if l.alone() {
			return
		}
		l.streams.silence(hung)
		if hung {
			number = l.office.quit() // else followers of events here would miss what another leader decides
		} else if l.leads() {
			l.office.resume(number) // the disk answered before raft lost the lead
		}
	})
}

// silence with true ends every raft connection and lets none be made; with false it allows them again.
func (s *streams) silence(silent bool) {
	s.mu.Lock()
	s.silent = silent
	s.mu.Unlock()
	if silent {
		s.hangUp(map[*stream]bool{})
	}
}
