package clustertest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/preemption"
)

// Peers whose data_dir is full have room only for blocks of stores with land: place: they report that, a dry run foresees it, and a drain
// ends like that.
func TestFullVaultsAreForeseen(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		cached, cachedBytes, others := int64(0), int64(0), int64(0)
		for _, b := range fill(c, 0) {
			if strings.HasPrefix(b.ID, "cache/") {
				cached, cachedBytes = cached+1, cachedBytes+b.Bytes
			} else {
				others++
			}
		}
		for i := 1; i < 3; i++ {
			c.SetDisk(i, "data", disks.HighUsage)
		}
		c.Sleep(30 * time.Second)
		if st := c.Show(1).Status; st.RoomBytes == 0 || st.VaultRoomBytes == nil || st.GetVaultRoomBytes() != 0 {
			t.Errorf("got %v, want room, but none in the vault", st)
		}
		for _, p := range c.Status(0).Peers {
			if p.RoomBytes == 0 || p.VaultRoomBytes == nil || p.GetVaultRoomBytes() != 0 || strings.Join(p.Places, " ") != "spark" {
				t.Errorf("got %v, want a peer with room for spark alone", p)
			}
		}
		r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.VaultRoomBytes == nil || r.GetVaultRoomBytes() != 0 || r.RoomBytes < r.Bytes || r.LostBytes != cachedBytes {
			t.Errorf("got %v, want the %d bytes of the cache lost", r, cachedBytes)
		}
		c.Notice(0, 30*time.Second)
		c.Sleep(time.Minute)
		if got := c.Show(0).Manifest; got.GetLost().GetBlocks() != cached || got.GetMoved().GetBlocks() != others {
			t.Errorf("got %v, want %d moved and %d lost", got, others, cached)
		}
	})
}

// A dry run tells how much of the room is on machines that may be reclaimed together with this one, where the cloud has said of which pool
// it is.
func TestDryRunTellsTheRoomOfItsPool(t *testing.T) {
	other := clustertest.Config{Agent: func(i int, cfg *agent.Config) {
		if i == 2 {
			cfg.Node.Pool = "another"
		}
	}}
	bubble(t, other, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.PoolRoomBytes == 0 || r.PoolRoomBytes >= r.RoomBytes {
			t.Errorf("got %d of %d bytes in its pool, want one of its two peers there", r.PoolRoomBytes, r.RoomBytes)
		}
	})
}

// A dry run also foresees, and names, what is lost even if peers have room: a file whose name cannot be an id.
func TestDryRunForeseesWhatCannotBeCarried(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := int64(len(fill(c, 0)))
		for name, content := range map[string]string{"tab\there": "data", "tab\ttoo": ""} {
			if err := os.WriteFile(filepath.Join(c.Dir(0), "cache", name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.Blocks != blocks || r.StayingBlocks != 2 || r.StayingBytes != 4 || r.LostBytes != 4 || r.UnreadDirectories != 0 ||
			len(r.Staying) != 2 || !strings.Contains(r.Staying[0], `cache/-/"tab\t`) || !strings.Contains(r.Staying[0], "rename the file") {
			t.Errorf("got %v, want two files named that cannot be carried, of 4 bytes", r)
		}
		if r := c.Simulate(0, preemption.KindFreeze, 0, true); r.StayingBlocks != 0 || r.LostBytes != 0 {
			t.Errorf("got %v, want nothing lost where the node stays", r)
		}
		c.Notice(0, 30*time.Second)
		c.Sleep(time.Minute)
		if got := c.Show(0).Manifest; got.GetLost().GetBlocks() != 2 || got.GetMoved().GetBlocks() != blocks {
			t.Errorf("got %v, want the two lost and no more", got)
		}
	})
}

// A dry run asks the peers themselves: a peer that the coordinator still names, but that does not answer, has no room, and is named.
func TestDryRunAsksThePeers(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(10 * time.Second)
		both := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if both.Peers != 2 || len(both.Unreached) != 0 || both.RoomBytes == 0 {
			t.Fatalf("got %v, want two peers", both)
		}
		c.Partition(2, c.Name(0))
		one := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if one.Peers != 1 || one.RoomBytes != both.RoomBytes/2 || len(one.Unreached) != 1 || !strings.HasPrefix(one.Unreached[0], c.Name(2)+": ") {
			t.Errorf("got %v, want the one peer that is reached, and the other named", one)
		}
		c.Partition(1, c.Name(0))
		if r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true); r.Peers != 0 || r.LostBytes != r.Bytes {
			t.Errorf("got %v, want all lost where nobody is reached", r)
		}
	})
}

// Leaving nodes have no room for each other. A peer says so itself, even before the coordinator has told of its leaving.
func TestDryRunLeavesOutWhoLeaves(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(10 * time.Second)
		c.Partition(0, clustertest.Coordinator)
		c.Notice(1, 2*time.Minute)
		c.Sleep(5 * time.Second)
		r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.Peers != 1 || len(r.Unreached) != 1 || !strings.HasPrefix(r.Unreached[0], c.Name(1)+": this node is under notice itself") {
			t.Errorf("got %v, want the one that stays, and why the other takes nothing", r)
		}
	})
}

// A dry run asks a fallback's directory too: what has no room there is lost, and everything if it does not answer.
func TestDryRunAsksTheFallback(t *testing.T) {
	share := t.TempDir()
	bubble(t, clustertest.Config{Agents: 1, Agent: func(_ int, cfg *agent.Config) { cfg.Fallback.Dir = share }}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(10 * time.Second)
		r := c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.Fallback == "" || r.FallbackRoomBytes == nil || r.LostBytes != 0 || len(r.Unreached) != 0 {
			t.Errorf("got %v, want room in the fallback", r)
		}
		if told := c.Nodes()[0].GetStatus(); told.GetFallback() == "" || told.GetFallbackRoomBytes() == 0 {
			t.Errorf("the coordinator was told %v, want the room in the fallback", told)
		}
		if err := os.RemoveAll(share); err != nil {
			t.Fatal(err)
		}
		r = c.Simulate(0, preemption.KindTerminate, 2*time.Minute, true)
		if r.LostBytes != r.Bytes || len(r.Unreached) != 1 || !strings.Contains(r.Unreached[0], "is it mounted?") {
			t.Errorf("got %v, want all lost where the share is gone, and that said", r)
		}
	})
}
