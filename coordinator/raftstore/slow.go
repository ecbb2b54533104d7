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
	// HangAfter is how long one write may take before the disk counts as hanging. A sync of a busy cloud volume takes a second at worst.
	HangAfter = 5 * time.Second
	// HangPace is how often waiters check for that.
	HangPace = time.Second

	// slowAfter is the longest that a write takes on a healthy disk. Every decision waits for a write here and for one at another
	// coordinator.
	slowAfter = 500 * time.Millisecond
	slowEvery = time.Minute // between two warnings of it in the log
)

// update writes to the disk, and notes when the write began for as long as it lasts, so that Hangs can see it. One writes at a time, as in
// bbolt: of several that wait, the one that has the disk is the one whose start counts.
func (s *Store) update(write func(*bolt.Tx) error) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	now := time.Now()
	s.writes.Store(&now)
	defer s.writes.Store(nil)
	err := s.Commit(write)
	s.slow.note(s.log, time.Since(now))
	return err
}

// slowness measures writes, and counts the slow ones since the last warning.
type slowness struct {
	took prometheus.Histogram

	mu     sync.Mutex // guards what follows
	told   time.Time  // the last warning
	writes int        // that were slow since then
	worst  time.Duration
}

// Took is the metric of how long writes took.
func (s *Store) Took() prometheus.Collector { return s.slow.took }

func newSlowness() *slowness {
	return &slowness{took: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "lifeboat_coordinator_log_write_seconds", Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10},
		Help: "How long the log took to be written and synced. Every decision waits for that.",
	})}
}

// note warns of slow writes, at most once each slowEvery: nothing else would tell an operator why every call waits.
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

// Hangs is an error when a write has been under way for longer than HangAfter: nothing can be decided here until the disk answers. Nil: no
// write has waited that long.
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

// UnlessHung returns what answer returns, or a HangsError if the disk hangs before that. Raft's main loop gives the answers; while it waits
// for a hanging disk, so would the caller. The goroutine that runs answer is left behind.
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

// HangsError says that raft has not answered because the disk hangs. What raft was asked to do may be done all the same.
type HangsError struct{ error }
