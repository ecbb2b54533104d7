package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"
)

// A leader whose disk hangs says nothing, and raft lets it lead: its main loop waits for the disk, and the lines to the others, which
// do not, go on to say that it lives. So it is looked at from outside. One that hangs is silenced until the disk answers again, the
// others hold an election, and callers are told to ask them.

const (
	// hangAfter is how long the log may take to be written. A sync of a busy cloud volume takes a second at the worst.
	hangAfter = 5 * time.Second
	hangPace  = time.Second

	// slowAfter is how long one that is well takes at the most: every decision waits for a write here, and one of the others' disks.
	slowAfter = 500 * time.Millisecond
	slowEvery = time.Minute // the log is told of it
)

// update writes to the disk, and has it be known meanwhile since when.
func (s *raftStore) update(write func(*bolt.Tx) error) error {
	now := time.Now()
	s.writes.CompareAndSwap(nil, &now) // or another write waits for the disk already
	defer s.writes.CompareAndSwap(&now, nil)
	err := s.commit(write)
	s.slow.note(s.log, time.Since(now))
	return err
}

// slowness is what is known of a disk that takes its time.
type slowness struct {
	took prometheus.Histogram

	mu     sync.Mutex // guards what follows
	told   time.Time
	writes int // that were slow since then
	worst  time.Duration
}

func newSlowness() *slowness {
	return &slowness{took: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "lifeboat_coordinator_log_write_seconds", Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10},
		Help: "How long the log took to be written and synced. Every decision waits for that.",
	})}
}

// note tells the log of slow writes now and then: nothing else would say why everybody waits.
func (s *slowness) note(log *slog.Logger, took time.Duration) {
	s.took.Observe(took.Seconds())
	if took < slowAfter {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes, s.worst = s.writes+1, max(s.worst, took)
	if now := time.Now(); now.Sub(s.told) >= slowEvery {
		log.Warn("the log is slow to be written, and every decision waits for it: look at the disk of data_dir, and what else writes to it", "took", s.worst.Round(time.Millisecond), "writes", s.writes)
		s.told, s.writes, s.worst = now, 0, 0
	}
}

// hangs is why nothing can be decided here: the disk does not answer; nil: it does, or has not been asked for long.
func (s *raftStore) hangs() error {
	began := s.writes.Load()
	if began == nil {
		return nil
	}
	if took := time.Since(*began); took > hangAfter {
		return fmt.Errorf("%s is not written since %s: does its disk hang?", s.db.Path(), took.Round(time.Second))
	}
	return nil
}

// unlessHung is what answer returns; or why the disk hangs, where it does before that comes. Raft's main loop, which answers, waits for the
// disk then, and so would whoever called.
func (s *raftStore) unlessHung(answer func() error) error {
	answered := make(chan error, 1)
	go func() { answered <- answer() }()
	look := time.NewTicker(hangPace)
	defer look.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-look.C:
			if why := s.hangs(); why != nil {
				return errHangs{why}
			}
		}
	}
}

// stopPatience is how long a coordinator may take to stop, beside its log: to hand the lead over, to end calls, and to know that the disk
// hangs meanwhile. Service managers give it 90 s (DefaultTimeoutStopSec of systemd-system.conf(5)).
const stopPatience = 4 * hangAfter

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

// errHangs is why raft has not answered. What it was asked for may be done all the same.
type errHangs struct{ error }

// watchDisk keeps a coordinator whose disk hangs from holding the lead, until ctx ends.
func (f *fleet) watchDisk(ctx context.Context) error {
	hung := false
	var base context.Context // of the time as the leader that was broken off
	var number uint64
	return every(ctx, hangPace, func() {
		err := f.ledger.store.hangs()
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
