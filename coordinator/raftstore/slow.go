package raftstore

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"
)

const (
	// HangAfter is how long the log may take to be written. A sync of a busy cloud volume takes a second at the worst.
	HangAfter = 5 * time.Second
	// HangPace is how often it is looked at.
	HangPace = time.Second

	// slowAfter is how long one that is well takes at the most: every decision waits for a write here, and one of the others' disks.
	slowAfter = 500 * time.Millisecond
	slowEvery = time.Minute // the log is told of it
)

// update writes to the disk, and has it be known meanwhile since when.
func (s *Store) update(write func(*bolt.Tx) error) error {
	now := time.Now()
	s.writes.CompareAndSwap(nil, &now) // or another write waits for the disk already
	defer s.writes.CompareAndSwap(&now, nil)
	err := s.Commit(write)
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

// Took is how long writing took.
func (s *Store) Took() prometheus.Collector { return s.slow.took }

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

// Hangs is why nothing can be decided here: the disk does not answer; nil: it does, or has not been asked for long.
func (s *Store) Hangs() error {
	began := s.writes.Load()
	if began == nil {
		return nil
	}
	if took := time.Since(*began); took > HangAfter {
		return fmt.Errorf("%s is not written since %s: does its disk hang?", s.db.Path(), took.Round(time.Second))
	}
	return nil
}

// UnlessHung is what answer returns; or why the disk hangs, where it does before that comes. Raft's main loop, which answers, waits for the
// disk then, and so would whoever called.
func (s *Store) UnlessHung(answer func() error) error {
	answered := make(chan error, 1)
	go func() { answered <- answer() }()
	look := time.NewTicker(HangPace)
	defer look.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-look.C:
			if why := s.Hangs(); why != nil {
				return HangsError{why}
			}
		}
	}
}

// HangsError is why raft has not answered. What it was asked for may be done all the same.
type HangsError struct{ error }
