package raftstore

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"
)

// A disk that takes a second to sync is logged once a minute, and shows in the metrics: nothing else says why calls wait.
func TestDiskThatIsSlowIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		s, err := Open(filepath.Join(t.TempDir(), "raft.db"), slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		write := s.Commit
		s.Commit = func(tx func(*bolt.Tx) error) error { time.Sleep(time.Second); return write(tx) }
		for i := range uint64(90) {
			if err := s.SetUint64([]byte("CurrentTerm"), i); err != nil {
				t.Fatal(err)
			}
		}
		s.Commit = write
		if err := s.SetUint64([]byte("CurrentTerm"), 90); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); strings.Count(got, "slow to be written") != 2 || !strings.Contains(got, "took=1s writes=60") {
			t.Errorf("got %q, want the first slow write, and those of the next minute", got)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(s.Took())
		if all, err := registry.Gather(); err != nil || all[0].GetMetric()[0].GetHistogram().GetSampleSum() < 90 {
			t.Errorf("got %v, %v, want 90 s of writing", all, err)
		}
	})
}

// Raft writes entries while a snapshot has old ones removed. The disk hangs between the two: that the first write ended says nothing of the
// second.
func TestDiskThatHangsBehindAWriteIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(filepath.Join(t.TempDir(), "raft.db"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		write, disk := s.Commit, make(chan time.Duration, 2)
		disk <- 2 * time.Second
		disk <- time.Minute
		s.Commit = func(tx func(*bolt.Tx) error) error {
			time.Sleep(<-disk)
			return write(tx)
		}
		var writing sync.WaitGroup
		writing.Go(func() { s.DeleteRange(1, 7) })
		time.Sleep(time.Second)
		writing.Go(func() { s.StoreLog(&raft.Log{Index: 8, Term: 1}) })
		time.Sleep(HangAfter)
		if err := s.Hangs(); err != nil {
			t.Errorf("got %v of a write that has had the disk for less than %s", err, HangAfter)
		}
		time.Sleep(HangAfter)
		if s.Hangs() == nil {
			t.Error("nothing is said of the write that hangs")
		}
		writing.Wait()
		if err := s.Hangs(); err != nil {
			t.Errorf("got %v of a disk that answers again", err)
		}
	})
}
