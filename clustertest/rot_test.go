package clustertest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
)

// dataOf returns some bytes of a block's largest member: enough to be found on a disk, within one chunk.
func dataOf(b *clustertest.Block) []byte {
	var data []byte
	for _, m := range b.Members {
		if len(m) > len(data) {
			data = m
		}
	}
	return data[:1000]
}

// rots flips a bit of a block at the node that holds it, and returns that node.
func rots(t *testing.T, c *clustertest.Cluster, b *clustertest.Block, among ...int) int {
	t.Helper()
	for _, i := range among {
		n := c.Flip(i, "data/vault/segments", dataOf(b))
		for _, dir := range []string{"spark-0", "spark-1"} {
			n += c.Flip(i, dir, dataOf(b))
		}
		if n > 0 {
			return i
		}
	}
	t.Fatalf("%s lies at none of %v", b.ID, among)
	return 0
}

// told returns the events about broken blocks, and about what then became of them.
func told(c *clustertest.Cluster) (all []*api.Event) {
	for _, e := range c.AllEvents() {
		if e.Type == "BlocksBroken" {
			all = append(all, e)
		}
	}
	return all
}

// A bit flips on a peer's disk after the receipt, while the block's source is drained and has time left. The peer finds it although nobody
// reads the block, and reports it; the source sends the block again, and the manifest says where it is now.
func TestRotIsFoundAndCarriedAgain(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		cached, shuffled := blocks[0], blocks[3]
		at := map[*clustertest.Block]int{cached: rots(t, c, cached, 1, 2), shuffled: rots(t, c, shuffled, 1, 2)}
		c.Until("both are found", 30*time.Second, func() bool {
			return c.Status(1).Status.BrokenBlocks+c.Status(2).Status.BrokenBlocks == 2
		})
		c.Until("both are held again", 20*time.Second, func() bool {
			return c.Locate(cached.ID).State == "held" && c.Locate(shuffled.ID).State == "held"
		})
		c.Sleep(5 * time.Second)
		entries := accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2)
		var again int
		for _, e := range told(c) {
			if e.Data["then"] != "again" || e.Data["from"] != c.Name(0) {
				t.Errorf("got the event %v, want it carried again", e)
			}
			again++
		}
		if again == 0 {
			t.Error("no event tells of what broke")
		}
		for b, was := range at {
			if e := entries[b.ID]; e.GetPeer() == c.Name(was) {
				t.Errorf("%s is back at %s, where it broke, and another peer had room", b.ID, e.Peer)
			}
		}
	})
}

// The coordinator restarts after the peer's report, and before the source has heard of it.
func TestRotIsCarriedAgainThoughTheCoordinatorRestarts(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Sleep(20 * time.Second)
		at := rots(t, c, blocks[0], 1, 2)
		c.Read(at, blocks[0].ID)
		c.Until("it is told", 5*time.Second, func() bool { return len(told(c)) > 0 })
		c.KillCoordinator()
		c.RestartCoordinator()
		c.Sleep(time.Minute)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2)
	})
}

// The same in the middle of a drain: that drain sends the block again.
func TestRotIsCarriedAgainByTheDrainThatRuns(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		var broken *clustertest.Block
		c.Until("a block has landed", 30*time.Second, func() bool {
			for _, b := range blocks {
				if strings.HasPrefix(b.ID, "cache/") && c.Locate(b.ID).State == "held" && c.Flip(1, "data/vault/segments", dataOf(b)) > 0 {
					broken = b
					return true
				}
			}
			return false
		})
		c.Until("it is found", 20*time.Second, func() bool { return c.Status(1).Status.BrokenBlocks == 1 })
		if n, _ := c.Moved(0); n == fillBlocks {
			t.Fatal("the drain is over before its middle")
		}
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		history(t, c, 0, registered, announced, decommissioned) // one goodbye is enough
		c.Kill(0)
		c.Sleep(time.Minute)
		c.Verify(1, broken)
		c.VerifyEverywhere(2)
	})
}

// The record of a block rots: its bytes are whole, but that cannot be checked any more. It is sent again like any other broken block.
func TestRottenRecordIsCarriedAgain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2}, func(t *testing.T, c *clustertest.Cluster) {
		var blocks []*clustertest.Block
		for _, name := range []string{"a", "b", "c"} {
			blocks = append(blocks, c.Write(0, "cache", name, fillSize))
		}
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		if c.Flip(1, "data/vault/catalog.db", []byte(blocks[1].ID+"\x05cache\x05files")) == 0 {
			t.Fatal("the catalog has no such record")
		}
		c.Until("it is found", 30*time.Second, func() bool { return c.Status(1).Status.BrokenBlocks == 1 })
		c.Until("it is held again", 20*time.Second, func() bool { return c.Locate(blocks[1].ID).State == "held" })
		c.Sleep(5 * time.Second)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Verify(1)
	})
}

// The receiver of a node's blocks has handed them on and is gone, and a bit flips where they are now. The node that they were written on is
// still there, advised to go or drained, and no other node has them.
func TestRotAtAnHeirIsCarriedAgainFromHome(t *testing.T) {
	for name, leave := range map[string]func(c *clustertest.Cluster) []*clustertest.Block{
		"copied ahead": copiedAhead,
		"drained": func(c *clustertest.Cluster) []*clustertest.Block {
			blocks := fill(c, 0)
			c.Decommission(0, 0, "test")
			c.WaitDrained(0)
			return blocks
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := leave(c)
				taker, live := handsOn(c)
				_, handed := c.Manifest(taker)
				c.Sleep(2 * time.Minute)
				i := slices.IndexFunc(blocks, func(b *clustertest.Block) bool { return handed[b.ID].GetOutcome() == "moved" })
				if i < 0 {
					t.Fatal("nothing was handed on")
				}
				at := rots(t, c, blocks[i], live...)
				for id := range blocks[i].Members {
					c.Read(at, id)
				}
				c.Until("it is found", time.Minute, func() bool { return len(told(c)) > 0 })
				c.Until("it is held again", time.Minute, func() bool { return c.Locate(blocks[i].ID).State == "held" })
				if e := told(c)[0]; e.Data["then"] != "again" || e.Data["from"] != c.Name(0) {
					t.Errorf("got the event %v, want it carried again by whom it was born at", e)
				}
				if name == "copied ahead" {
					c.Notice(0, 2*time.Minute)
					c.WaitDrained(0)
				}
				c.Sleep(5 * time.Second)
				accounted(t, c, 0, blocks, 0)
				c.Kill(0)
				c.Sleep(time.Minute)
				c.VerifyEverywhere(live...)
			})
		})
	}
}

// There is no time left to send the block again: readers are sent to its source while that is there, and after the goodbye another manifest
// follows that names the block as lost.
func TestRotTooLateIsNamedAsLost(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Sleep(112 * time.Second) // sending had to stop ten seconds before the end
		b := blocks[0]
		rots(t, c, b, 1)
		c.Verify(1, b) // read from the source
		c.Until("the manifest names it", 6*time.Second, func() bool {
			_, entries := c.Manifest(0)
			return entries[b.ID].GetOutcome() == "lost"
		})
		entries := accounted(t, c, 0, blocks, 1)
		if e := entries[b.ID]; !strings.Contains(e.Reason, "deadline") || !strings.Contains(e.Reason, c.Name(1)) {
			t.Errorf("got the reason %q, want the deadline and the peer", e.Reason)
		}
		c.Kill(0)
		c.Sleep(time.Minute)
		if status, _ := c.Read(1, b.ID); status != http.StatusGone {
			t.Errorf("it is lost: got status %d, want 410", status)
		}
		c.Verify(1, blocks[1:]...)
	})
}

// twoHave puts a block of node 0 at two nodes: the first leaves and has handed it on to the second.
func twoHave(c *clustertest.Cluster) (b *clustertest.Block, first, second int) {
	holder := func(but int) (at int) {
		for i := 1; i < 4; i++ {
			if i != but && c.Status(i).Status.HeldBytes >= 200_000 { // less is only the manifest of the drain
				at = i
			}
		}
		return at
	}
	b = c.Write(0, "cache", "part", 200_000)
	c.Notice(0, 120*time.Second)
	c.WaitDrained(0)
	first = holder(0)
	c.Sleep(time.Minute)
	c.Notice(first, 120*time.Second)
	c.WaitDrained(first)
	c.Sleep(2 * time.Second)
	return b, first, holder(first)
}

// The node that handed the block on still has it, but leaves: it sends the block again.
func TestRotOfWhatALeaverHandedOn(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		b, first, second := twoHave(c)
		c.Kill(0)
		rots(t, c, b, second)
		c.Until("it is found", 30*time.Second, func() bool { return c.Status(second).Status.BrokenBlocks == 1 })
		c.Sleep(10 * time.Second)
		if all := told(c); len(all) != 1 || all[0].Data["then"] != "again" || all[0].Data["from"] != c.Name(first) {
			t.Errorf("got the events %v, want one that has %s carry it again", all, c.Name(first))
		}
		c.Kill(first)
		c.Sleep(time.Minute)
		c.Verify(second, b)
	})
}

// Another node has the block too, and stays after all: no node is asked to send it again, and the other serves readers.
func TestRotOfOneCopyOfTwo(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		b, first, second := twoHave(c)
		c.Withdraw(first)
		c.WaitState(first, "ACTIVE")
		c.Sleep(2 * time.Second) // and its next beat says so, too
		rots(t, c, b, second)
		c.Read(second, b.ID) // the look at what has just landed may be over by now
		c.Until("it is found", 30*time.Second, func() bool { return c.Status(second).Status.BrokenBlocks == 1 })
		c.Sleep(10 * time.Second)
		all := told(c)
		if len(all) != 1 || all[0].Data["then"] != "held" || all[0].Data["peer"] != c.Name(first) || all[0].Node != c.Name(second) {
			t.Errorf("got the events %v, want one that names %s as the holder", all, c.Name(first))
		}
		if c.Status(second).Status.HeldBytes >= 200_000 {
			t.Error("it was carried again, though another has it")
		}
		c.Verify(second, b)
	})
}

// The source is gone, so no node can be asked to send the block again, and readers are told to compute it again.
func TestRotAfterTheSourceIsGone(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(time.Minute)
		b := blocks[0]
		at := rots(t, c, b, 1, 2)
		if status, _ := c.Read(at, b.ID); status == http.StatusOK {
			t.Error("wrong bytes are served")
		}
		c.Sleep(5 * time.Second)
		all := told(c)
		if len(all) != 1 || all[0].Data["then"] != "lost" || all[0].Data["block"] != b.ID || all[0].Node != c.Name(at) {
			t.Errorf("got the events %v, want one of %s, lost", all, b.ID)
		}
		for i := 1; i < 3; i++ {
			if status, _ := c.Read(i, b.ID); status != http.StatusGone {
				t.Errorf("read at %s: got status %d, want 410", c.Name(i), status)
			}
		}
		c.Verify(1, blocks[1:]...)
	})
}
