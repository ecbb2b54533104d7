package clustertest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/disks"
)

// A node of which every disk is bad gets no blocks until it reports a good one. One good disk is enough.
func TestNodeWithoutAGoodDiskIsExcluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 3, Coordinator: func(cfg *coordinator.Config) { cfg.Heartbeat = 5 * time.Second }})
		excluded := func(want bool) func() bool {
			return func() bool {
				n := c.Show(1)
				return n.GetExcluded() == want && n.GetSchedulable() == !want
			}
		}
		c.SetDisk(1, "cache", disks.IOHang)
		c.SetDisk(1, "spark-0", disks.Missing)
		c.SetDisk(1, "spark-1", disks.ReadOnly)
		c.Sleep(7 * time.Second)
		if n := c.Show(1); n.GetExcluded() || !n.GetSchedulable() {
			t.Errorf("with one good disk left: got excluded %t, schedulable %t", n.GetExcluded(), n.GetSchedulable())
		}
		c.SetDisk(1, "", disks.Critical)
		if took := c.Until("the node is excluded", 5*time.Second, excluded(true)); took > 500*time.Millisecond {
			t.Errorf("the coordinator heard after %s: want a beat at once", took)
		}
		c.Until("nobody sends it blocks", 10*time.Second, func() bool { return len(c.Peers(0)) == 1 })
		c.KillCoordinator()
		c.RestartCoordinator()
		c.Sleep(10 * time.Second)
		if !excluded(true)() {
			t.Error("a new coordinator took the node back without a word from it")
		}
		c.SetDisk(1, "data", disks.Healthy)
		c.Until("the node is taken back", 5*time.Second, excluded(false))
		c.Until("it takes blocks again", 30*time.Second, func() bool { return len(c.Peers(0)) == 2 })
	})
}

// The blocks on a dying disk are soon elsewhere without a request, while the node stays. A notice takes precedence, and the evacuation
// survives a restart.
func TestDyingDiskIsEvacuated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) {
			cfg.Drain.PreCopyBytesPerSecond = 1 << 20
		}})
		var dying []*clustertest.Block
		for i := range 20 {
			dying = append(dying, c.Write(0, "cache", fmt.Sprint("part-", i), 200<<10))
		}
		safe := c.Write(0, "spark", "shuffle_1_2_0", 1<<10)
		state := evacuationOf(c, disks.Critical)
		c.SetDisk(0, "cache", disks.Critical)
		c.Until("the evacuation begins", 5*time.Second, state("running"))
		c.Kill(0)
		c.Restart(0)
		c.Until("the evacuation goes on", 5*time.Second, state("running"))
		c.Until("all is elsewhere", 30*time.Second, state("done"))
		c.Sleep(5 * time.Second) // the holders report with their next beats
		for _, b := range dying {
			if r := c.Locate(b.ID); r.GetState() != "held" {
				t.Errorf("%s: got %s, want it held", b.ID, r.GetState())
			}
		}
		if r := c.Locate(safe.ID); len(r.GetHolders()) > 0 {
			t.Errorf("%s lies on a disk that is well, and was carried to %v", safe.ID, r.GetHolders())
		}
		if n := c.Show(0); n.GetState() != "ACTIVE" || !n.GetSchedulable() || n.GetExcluded() {
			t.Errorf("the node should stay: got %v", n)
		}
		c.VerifyEverywhere(1, 2)
		c.SetDisk(0, "cache", disks.Healthy)
		c.Until("it is forgotten", 5*time.Second, func() bool { return len(c.Status(0).GetEvacuations()) == 0 })
	})
}

// evacuationOf asks whether the first node has one evacuation, for that reason, in a state.
func evacuationOf(c *clustertest.Cluster, by disks.Health) func(state string) func() bool {
	return func(state string) func() bool {
		return func() bool {
			all := c.Status(0).GetEvacuations()
			return len(all) == 1 && all[0].GetState() == state && all[0].GetBy() == by.String()
		}
	}
}

// SIGHUP with another drain.pre_copy_bytes_per_second counts for the evacuation that runs.
func TestReloadLiftsTheCapOfAnEvacuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cfg agent.Config
		c := clustertest.New(t, clustertest.Config{Agents: 3, Agent: func(i int, own *agent.Config) {
			own.Drain.PreCopyBytesPerSecond = 1 << 10
			if i == 0 {
				cfg = *own
			}
		}})
		for i := range 20 {
			c.Write(0, "cache", fmt.Sprint("part-", i), 200<<10)
		}
		c.SetDisk(0, "cache", disks.Critical)
		state := evacuationOf(c, disks.Critical)
		c.Until("the evacuation begins", 5*time.Second, state("running"))
		c.Sleep(5 * time.Second)
		cfg.Drain.PreCopyBytesPerSecond = 0
		if left := c.Agent(0).Reload(cfg); len(left) > 0 {
			t.Errorf("%q need a restart", left)
		}
		c.Until("the evacuation ends", 10*time.Second, state("done"))
	})
}

// An evacuation waits while the whole node leaves, and goes on if it stays after all.
func TestEvacuationGivesWayToANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) {
			cfg.Drain.PreCopyBytesPerSecond = 100 << 10
		}})
		for i := range 20 {
			c.Write(0, "cache", fmt.Sprint("part-", i), 200<<10)
		}
		c.SetDisk(0, "cache", disks.ReadWriteFailure)
		state := evacuationOf(c, disks.ReadWriteFailure)
		c.Until("the evacuation begins", 5*time.Second, state("running"))
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		if !state("waiting")() {
			t.Errorf("while the node leaves: got %v", c.Status(0).GetEvacuations())
		}
		c.Withdraw(0)
		c.Until("the evacuation goes on", time.Minute, state("running"))
		c.SetDisk(0, "cache", disks.IOHang)
		c.Until("it waits for a disk that does not answer", 5*time.Second, state("waiting"))
		c.SetDisk(0, "cache", disks.Critical)
		c.Until("the evacuation ends", time.Minute, state("done"))
	})
}
