package raftstore

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Snapshots is raft's store of snapshots, with one addition: no draft stays. Raft's own store leaves a draft behind if the disk is full, and
// after a crash, and never removes it. So a snapshot that found no room would keep what room there was from the log for ever.
type Snapshots struct {
	raft.SnapshotStore
	dir string

	mu      sync.Mutex
	written map[string]bool // drafts that are being written, by name
}

// draftSuffix is what the names of drafts end in (tmpSuffix in raft's file_snapshot.go).
const draftSuffix = ".tmp"

// OpenSnapshots opens or makes the store of the newest snapshots below dir. Nobody else may have it open.
func OpenSnapshots(dir string, kept int, log hclog.Logger) (*Snapshots, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, kept, log)
	if err != nil {
		return nil, err
	}
	s := &Snapshots{SnapshotStore: files, dir: filepath.Join(dir, "snapshots"), written: map[string]bool{}}
	return s, s.tidy()
}

// Create implements raft.SnapshotStore.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, transport raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, transport)
	if err != nil {
		return nil, errors.Join(err, s.tidy())
	}
	d := &draft{SnapshotSink: sink, store: s, name: sink.ID() + draftSuffix}
	s.written[d.name] = true
	return d, nil
}

// tidy removes the drafts that nobody writes.
func (s *Snapshots) tidy() error {
	all, err := filepath.Glob(filepath.Join(s.dir, "*"+draftSuffix))
	for _, path := range all {
		if !s.written[filepath.Base(path)] {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// draft is a snapshot that is being written.
type draft struct {
	raft.SnapshotSink
	store *Snapshots
	name  string
}

// Close implements raft.SnapshotSink.
func (d *draft) Close() error { return d.end(d.SnapshotSink.Close()) }

// Cancel implements raft.SnapshotSink.
func (d *draft) Cancel() error { return d.end(d.SnapshotSink.Cancel()) }

func (d *draft) end(err error) error {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	delete(d.store.written, d.name)
	return errors.Join(err, d.store.tidy())
}
