package clustertest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

// The coordinator is away from before the notice until after the deadline, and the agent starts meanwhile: it knows its peers from its
// own disk. When the coordinator is back it is told everything.
func TestDrainWithoutCoordinator(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.KillCoordinator()
		c.Kill(0)
		c.Restart(0)
		c.Sleep(10 * time.Second)
		c.Notice(0, 120*time.Second)
		c.Until("the drain is over", 20*time.Second, func() bool { return c.Status(0).Manifest != nil })
		if m := c.Status(0).Manifest; m.Moved.Blocks != fillBlocks || m.Lost.Blocks != 0 {
			t.Errorf("got %v, want all moved", m)
		}
		c.Sleep(time.Minute)
		c.RestartCoordinator()
		c.WaitDrained(0)
		entries := accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		for _, b := range blocks {
			through := 1
			if entries[b.ID].Peer == c.Name(1) {
				through = 2
			}
			c.Verify(through, b)
		}
		nobodyLost(t, c)
	})
}

// The coordinator is killed and comes back in the middle of a drain. It remembers who leaves and until when, at once.
func TestCoordinatorRestartsMidDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		before, at := c.Show(0), time.Now()
		c.KillCoordinator()
		c.Sleep(5 * time.Second)
		c.RestartCoordinator()
		check := func() {
			t.Helper()
			n := c.Show(0)
			want := before.Remaining.AsDuration() - time.Since(at)
			if n.State != "DECOMMISSIONING" || (n.Remaining.AsDuration()-want).Abs() > time.Second {
				t.Errorf("got %s, %s remaining; want DECOMMISSIONING, %s", n.State, n.Remaining.AsDuration(), want)
			}
		}
		check()
		c.Sleep(6 * time.Second)
		check()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.Sleep(time.Minute)
		nobodyLost(t, c)
		history(t, c, 0, registered, announced, decommissioned)
		c.VerifyEverywhere(1, 2)
	})
}

// The node cannot reach the coordinator, but its peers can: no block is lost.
func TestDrainCutOffFromCoordinator(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Partition(0, clustertest.Coordinator)
		c.Until("the drain is over", time.Minute, func() bool { return c.Status(0).Manifest != nil })
		if state := c.State(0); state != "DECOMMISSIONING" {
			t.Errorf("while it cannot be heard it is %s", state)
		}
		c.Heal()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		nobodyLost(t, c)
		c.VerifyEverywhere(1, 2)
	})
}

// The coordinator is away from before the notice until the machine is gone, and there was no time for all blocks: a peer that has the
// node's manifest names the lost ones.
func TestCutDrainWithoutCoordinator(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.KillCoordinator()
		c.Notice(0, 12*time.Second)
		c.Sleep(12 * time.Second)
		m := c.Status(0).Manifest
		if m.GetMoved().GetBlocks() == 0 || m.GetLost().GetBlocks() == 0 {
			t.Fatalf("got %v, want some moved and some lost", m)
		}
		c.Kill(0)
		c.RestartCoordinator()
		c.Sleep(30 * time.Second)
		got := keptAccount(t, c, 0, m.Incident)
		if n := m.Moved.Blocks + m.Lost.Blocks; int64(len(got)) != n {
			t.Errorf("the account at a peer names %d blocks, want the %d there were", len(got), n)
		}
	})
}

// keptAccount reads, through another node, the account of a node's incident that a peer keeps.
func keptAccount(t *testing.T, c *clustertest.Cluster, i int, incident string) (entries []*api.ManifestEntry) {
	t.Helper()
	id := api.AccountPrefix(c.Name(i)) + incident
	status, account := c.Read((i+1)%len(c.Nodes()), id)
	if status != http.StatusOK {
		t.Fatalf("%s: got %d, at %v", id, status, c.Locate(id))
	}
	for r := bytes.NewReader(account); r.Len() > 0; {
		var part api.GoodbyeRequest
		if err := protodelim.UnmarshalFrom(r, &part); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, part.Entries...)
	}
	return entries
}

// What a drained node carries later is in the account that a peer keeps, too: hours after an order without a limit, when drain.timeout is
// long over, and after the agent was killed in the middle of it.
func TestAccountAtAPeerHasWhatWasCarriedLater(t *testing.T) {
	for name, killed := range map[string]bool{"long after": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			cfg := clustertest.Config{BytesPerSecond: slow, Agent: func(_ int, cfg *agent.Config) { cfg.Drain.Timeout = 2 * time.Minute }}
			bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
				c.WaitDrained(0)
				c.Sleep(10 * time.Second)
				if !killed {
					c.Sleep(3 * time.Minute)
				}
				for n := range 15 {
					blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("late-%d", n), fillSize))
				}
				c.Until("some of what was written since is carried", 10*time.Minute, func() bool { n, _ := c.Moved(0); return n > fillBlocks+3 })
				if killed {
					c.Kill(0)
					c.Restart(0)
				}
				c.Until("the coordinator is told", time.Minute, func() bool {
					m, _ := c.Manifest(0)
					return m.GetMoved().GetBlocks() == int64(len(blocks))
				})
				c.Sleep(10 * time.Second)
				if got := keptAccount(t, c, 0, c.Status(0).Manifest.Incident); len(got) != len(blocks) {
					t.Errorf("the account at a peer names %d blocks, want %d", len(got), len(blocks))
				}
			})
		})
	}
}

// The node is LOST to the coordinator before the notice comes, and the coordinator is told everything when the drain is over.
func TestDrainOfANodeGivenUp(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Partition(0, clustertest.Coordinator)
		c.WaitState(0, "LOST")
		c.Notice(0, 120*time.Second)
		c.Until("the drain is over", 20*time.Second, func() bool { return c.Status(0).Manifest != nil })
		c.Sleep(3 * time.Second) // the peers' next beats tell it
		for _, b := range blocks {
			if got := c.Locate(b.ID); got.State != "held" {
				t.Errorf("locate %s: got %v, want it at a peer, which has said so", b.ID, got)
			}
		}
		c.Heal()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if events := c.Events(0); events[1].Type != lost || events[len(events)-1].Type != decommissioned {
			t.Errorf("got the events %v, want it lost at first and gone at last", events)
		}
		c.VerifyEverywhere(1, 2)
	})
}

// One of two peers falls silent, without so much as a closed connection. What was on its way there goes to the other, in
// time.
func TestPeerFallsSilentMidDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Partition(0, c.Name(1))
		if took := c.WaitDrained(0); took > 60*time.Second {
			t.Errorf("drained %s after one of two peers fell silent, want less than 60 s", took)
		}
		accounted(t, c, 0, blocks, 0)
		c.Heal()
		c.Sleep(10 * time.Second)
		c.VerifyEverywhere(1, 2)
	})
}

// After a node's goodbye the coordinator starts with an empty disk, or from an older state: the node says goodbye again.
func TestCoordinatorLosesTheAccount(t *testing.T) {
	for name, restored := range map[string]bool{"begun anew": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
				dir := filepath.Join(filepath.Dir(c.Dir(0)), clustertest.Coordinator)
				blocks := fill(c, 0)
				c.DecommissionSelf(0, preemption.SourceManual, 0, "")
				half(t, c, 0)
				c.KillCoordinator()
				if restored {
					if err := os.CopyFS(dir+".before", os.DirFS(dir)); err != nil {
						t.Fatal(err)
					}
				}
				c.RestartCoordinator()
				c.WaitDrained(0)
				c.Sleep(3 * time.Second)
				c.KillCoordinator()
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(dir+".before", dir); err != nil && restored {
					t.Fatal(err)
				}
				c.RestartCoordinator()
				c.Until("all nodes are back", 20*time.Second, func() bool { return len(c.Nodes()) == 3 })
				if took := c.WaitDrained(0); took > 5*time.Second {
					t.Errorf("told after %s, want a few beats", took)
				}
				accounted(t, c, 0, blocks, 0)
				c.Sleep(time.Minute)
				if events := c.Events(0); events[len(events)-1].Type != decommissioned {
					t.Errorf("got the events %v, want the account told once", events)
				}
			})
		})
	}
}
