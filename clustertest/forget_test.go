package clustertest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
)

// Blocks change, and one is deleted, after they have moved to a peer. That peer takes no more, so the changed blocks go to another: no
// reader gets the old bytes, whichever node it asks.
func TestWhatChangedAfterItMovedIsNotReadInItsOldVersion(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		file := func(b *clustertest.Block) string {
			return filepath.Join(c.Dir(0), "cache", strings.TrimPrefix(b.ID, "cache/-/"))
		}
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		at := map[int][]*clustertest.Block{}
		for _, b := range blocks {
			for i := range 3 {
				if got := c.Locate(b.ID); strings.HasPrefix(b.ID, "cache") && len(got.Holders) == 1 && got.Holders[0].Node == c.Name(i) {
					at[i] = append(at[i], b)
				}
			}
		}
		had, takes := 1, 2
		if len(at[2]) > len(at[1]) {
			had, takes = 2, 1
		}
		changed := at[had]
		if len(changed) < 2 {
			t.Fatalf("%d blocks are at %s", len(changed), c.Name(had))
		}
		c.SetDisk(had, "", disks.HighUsage)
		deleted, changed := changed[0], changed[1:]
		if err := os.Remove(file(deleted)); err != nil {
			t.Fatal(err)
		}
		for _, b := range changed {
			b.Members[b.ID] = bytes.Repeat([]byte("new."), fillSize/4)
			if err := os.WriteFile(file(b), b.Members[b.ID], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c.WaitDrained(0)
		_, entries := c.Manifest(0)
		c.Kill(0)
		for _, b := range changed {
			if e := entries[b.ID]; e.GetOutcome() != "moved" || e.GetPeer() != c.Name(takes) {
				t.Errorf("%s: got %v, want it moved to %s", b.ID, e, c.Name(takes))
			}
			c.Verify(1, b)
			c.Verify(2, b)
		}
		if e := entries[deleted.ID]; e.GetOutcome() != "skipped" || !strings.Contains(e.GetReason(), "deleted") {
			t.Errorf("%s: got %v, want it skipped because it was deleted", deleted.ID, e)
		}
		if status, _ := c.Read(had, deleted.ID); status == 200 {
			t.Errorf("%s is read after it was deleted", deleted.ID)
		}
		nobodyLost(t, c)
	})
}

// A notice is withdrawn after the drain, and the engine rewrites one of its files and deletes another. No reader gets the old versions,
// although the node does not leave again, and the next drain carries what is there then.
func TestWhatChangedAfterTheNoticeWasWithdrawnIsNotReadInItsOldVersion(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		file := func(b *clustertest.Block) string {
			return filepath.Join(c.Dir(0), "cache", strings.TrimPrefix(b.ID, "cache/-/"))
		}
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Withdraw(0)
		c.WaitState(0, "ACTIVE")
		changed, deleted := blocks[0], blocks[1]
		changed.Members[changed.ID] = bytes.Repeat([]byte("new."), fillSize/4)
		if err := errors.Join(os.WriteFile(file(changed), changed.Members[changed.ID], 0o644), os.Remove(file(deleted))); err != nil {
			t.Fatal(err)
		}
		forgotten := func(b *clustertest.Block) func() bool {
			return func() bool { return len(c.Locate(b.ID).Holders) == 0 }
		}
		c.Until("what changed is forgotten", 5*time.Minute, forgotten(changed))
		c.Until("what was deleted is forgotten", time.Minute, forgotten(deleted))
		for i := range 3 {
			c.Verify(i, changed)
			c.Verify(i, blocks[2:]...)
			if status, _ := c.Read(i, deleted.ID); status == 200 {
				t.Errorf("%s is read on %s after it was deleted", deleted.ID, c.Name(i))
			}
		}
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		accounted(t, c, 0, append(blocks[2:], changed), 0)
		c.Kill(0)
		c.Verify(1, changed)
		c.Verify(2, blocks[2:]...)
	})
}

// A peer has lost some of the copies of an earlier drain, and takes nothing now. The blocks change: the peer must drop the copies that it
// still has.
func TestPeerOfAnEarlierDrainHasOnlySomeOfIt(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		var blocks []*clustertest.Block
		for i := range 20 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprint("part-", i), 20_000))
		}
		c.Deactivate(false, 2)
		c.Sleep(5 * time.Second) // all have heard
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		c.Recommission(0)
		for _, b := range blocks[:10] {
			if n := c.Flip(1, "data/vault/segments", b.Members[b.ID]); n != 1 {
				t.Fatalf("%d copies of %s are at the peer, want 1", n, b.ID)
			}
			c.Read(1, b.ID) // it is found broken
		}
		c.Deactivate(true, 2)
		c.Deactivate(false, 1)
		c.Sleep(5 * time.Second)
		rewrite(t, c, blocks)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2)
	})
}
