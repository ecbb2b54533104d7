package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// A leader whose disk hangs says nothing, and raft lets it lead: its main loop waits for the disk, and the lines to the others, which
// do not, go on to say that it lives. So it is looked at from outside. One that hangs is silenced until the disk answers again, the
// others hold an election, and callers are told to ask them.

// stopPatience is how long a coordinator may take to stop, beside its log: to hand the lead over, to end calls, and to know that the disk
// hangs meanwhile. Service managers give it 90 s (DefaultTimeoutStopSec of systemd-system.conf(5)).
const stopPatience = 4 * raftstore.HangAfter

// outlast is what wait returns, and no longer waits for it than stopPatience once ctx has ended: a file of data_dir may be waited for.
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
func (f *fleet) watchDisk(ctx context.Context) error {
	hung := false
	var base context.Context // of the time as the leader that was broken off
	var number uint64
	return every(ctx, raftstore.HangPace, func() {
		err := f.ledger.store.Hangs()
		if hung == (err != nil) {
			return
		}
		if hung = err != nil; hung {
			f.log.Error("the disk of data_dir hangs, and this coordinator decides nothing until it answers: look at it, or replace it", "err", err)
		} else {
			f.log.Info("the disk of data_dir answers again")
		}
		if f.ledger.alone() {
			return
		}
		f.ledger.streams.silence(hung)
		if hung {
			number, base = f.ledger.term(), f.ledger.office.quit() // who follows events here hears of nothing that another decides
		} else if base != nil && f.ledger.leads() && f.ledger.term() == number {
			f.ledger.office.enter(base, number) // it answered before raft had noticed anything
		}
	})
}

// silence ends every connection and lets none be made, or does so no more.
func (s *streams) silence(silent bool) {
	s.mu.Lock()
	s.silent = silent
	s.mu.Unlock()
	if silent {
		s.hangUp(map[*stream]bool{})
	}
}
