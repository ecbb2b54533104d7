package raftstore

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// Raft writes a vote in two halves and answers after the second: the disk has both or neither.
func TestVoteIsWrittenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	open := func() *Store {
		s, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	vote := func(s *Store) (uint64, string) {
		t.Helper()
		term, err1 := s.GetUint64(voteTerm)
		who, err2 := s.Get(voteCandidate)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return term, string(who)
	}
	s := open()
	before := writes(t, s)
	if err := errors.Join(s.SetUint64(voteTerm, 7), s.Set(voteCandidate, []byte("c2"))); err != nil {
		t.Fatal(err)
	}
	if n := writes(t, s) - before; n != 1 {
		t.Errorf("got %d writes for a vote, want 1", n)
	}
	if err := s.SetUint64(voteTerm, 8); err != nil { // and the process ends here
		t.Fatal(err)
	}
	if term, _ := vote(s); term != 8 {
		t.Errorf("got term %d of what was just set, want 8", term)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	if term, who := vote(s); term != 7 || who != "c2" {
		t.Errorf("got a vote for %s in term %d, want for c2 in 7", who, term)
	}
}

// writes is how often the file was written.
func writes(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.db.View(func(tx *bolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A log that cannot be written is an error at once, so that another leader is elected. It is reported once, and the coordinator is not fit
// to lead for a while after.
func TestIllStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s, err := Open(filepath.Join(t.TempDir(), "raft.db"), slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.db.MaxSize = 1
		began := time.Now()
		for i := range uint64(3) {
			if err := s.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 1<<20)}); err == nil {
				t.Fatal("it was written")
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s to say so: nobody else is elected meanwhile", took)
		}
		if s.Ill() == nil || strings.Count(said.String(), "the log cannot be written") != 1 {
			t.Errorf("got %v, and said %q", s.Ill(), &said)
		}
		s.db.MaxSize = 0
		if err := s.SetUint64([]byte("CurrentTerm"), 2); err != nil || time.Since(began) < DiskPause {
			t.Errorf("got %v after %s, want the next election no sooner than after %s", err, time.Since(began), DiskPause)
		}
		time.Sleep(convalesce)
		if err := s.Ill(); err != nil {
			t.Errorf("got %v when it is long over", err)
		}
	})
}
