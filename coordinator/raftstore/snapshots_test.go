package raftstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
)

// A snapshot that finds no room gives back what it took, or the log could not be written either.
func TestSnapshotWithoutRoomLeavesNothing(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	killed := filepath.Join(dir, "snapshots", "1-1-1"+draftSuffix)
	if err := os.MkdirAll(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSnapshots(dir, 2, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, transport := raft.NewInmemTransport("a")
	create := func() (raft.SnapshotSink, error) {
		return s.Create(raft.SnapshotVersionMax, 7, 1, raft.Configuration{}, 1, transport)
	}
	wantNone := func(when string) {
		t.Helper()
		if left, _ := os.ReadDir(filepath.Join(dir, "snapshots")); len(left) > 0 {
			t.Errorf("%s: %v is left", when, left)
		}
	}
	wantNone("after a kill amid a snapshot")
	sink, err := create()
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = sink.Write(make([]byte, 64<<10))
	}
	sink.Cancel()
	wantNone("after a snapshot that filled the disk")
	if sink, err = create(); err != nil {
		t.Fatal(err)
	}
	if _, err = sink.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	smalldisk.Fill(t, dir)
	if err := sink.Close(); err == nil {
		t.Error("a snapshot was written to a full disk")
	}
	wantNone("after a snapshot on a full disk")
	smalldisk.Fill(t, dir)
	if _, err := create(); err == nil {
		t.Error("a snapshot was begun on a full disk")
	}
	wantNone("after one that was not begun")

	if err := os.Remove(filepath.Join(dir, "full")); err != nil {
		t.Fatal(err)
	}
	if sink, err = create(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v, want one snapshot", all, err)
	}
}
