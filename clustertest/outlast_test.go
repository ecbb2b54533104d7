package clustertest_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
)

// copiedAhead has node 0 copy all of its blocks ahead, and stay.
func copiedAhead(c *clustertest.Cluster) []*clustertest.Block {
	blocks := fill(c, 0)
	c.Rebalance(0)
	c.Until("all is copied ahead", 5*time.Minute, func() bool { n, _ := c.Moved(0); return n == fillBlocks })
	return blocks
}

// killHolder kills the peer to which node 0 sent most, and returns it and the two others.
func killHolder(c *clustertest.Cluster) (dead int, others [2]int) {
	dead, others = most(c, 0)
	c.Kill(dead)
	c.WaitState(dead, "LOST")
	return dead, others
}

// most returns the one of nodes 1 to 3 to which node from sent most, and the others.
func most(c *clustertest.Cluster, from int) (to int, others [2]int) {
	to = 1
	for i := 2; i <= 3; i++ {
		if c.Sent(from, i) > c.Sent(from, to) {
			to = i
		}
	}
	return to, [2]int{1 + to%3, 1 + (to+1)%3}
}

// wasTaken counts the blocks that a peer took, by the sending node's manifest.
func wasTaken(c *clustertest.Cluster, from, by int) (n int) {
	_, entries := c.Manifest(from)
	for _, e := range entries {
		if e.Peer == c.Name(by) {
			n++
		}
	}
	return n
}

// A node that was advised to go may stay for weeks, and the holders of its blocks may go first. When it leaves it sends the blocks again that
// no node has any more, and no others.
func TestHolderIsGoneBeforeTheNotice(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		dead, live := killHolder(c)
		ahead := c.Sent(0, live[0]) + c.Sent(0, live[1])
		late := c.Write(0, "cache", "late", 1000)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, append(blocks, late), 0)
		if n := wasTaken(c, 0, dead); n > 0 {
			t.Errorf("%d blocks are said to be at the one that is gone", n)
		}
		if again := c.Sent(0, live[0]) + c.Sent(0, live[1]) - ahead; again+ahead < fillBytes || again+ahead > fillBytes*3/2 {
			t.Errorf("sent %d bytes and %d again, want what of %d was at the one that is gone, and no more", ahead, again, fillBytes)
		}
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// Even without a notice, a node that is advised to go makes sure that its blocks stay held.
func TestHolderIsGoneAndNoNoticeComes(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		copiedAhead(c)
		_, live := killHolder(c)
		c.Sleep(2 * time.Minute)
		c.Kill(0)
		c.WaitState(0, "LOST")
		c.VerifyEverywhere(live[0], live[1])
	})
}

// Blocks that a node copied ahead are kept as long as those that it sends when it leaves: while the node may still go, and for
// receive.keep once it has gone.
func TestWhatWasCarriedAheadIsKeptFromWhenItsNodeGoes(t *testing.T) {
	short := func(_ int, cfg *agent.Config) { cfg.Receive.Keep = 3 * time.Minute }
	bubble(t, calm(clustertest.Config{Agents: 3, Agent: short}), func(t *testing.T, c *clustertest.Cluster) {
		carried := copiedAhead(c)
		ahead := c.Sent(0, 1) + c.Sent(0, 2)
		removed, blocks := carried[3], slices.Delete(slices.Clone(carried), 3, 4) // a map output: peers keep one that its engine removes, as engines do when an application ends
		for id := range removed.Members {
			files, _ := filepath.Glob(filepath.Join(c.Dir(0), "*", "*", "*", filepath.Base(id)))
			if len(files) != 1 || os.Remove(files[0]) != nil {
				t.Fatalf("cannot remove %v", files)
			}
		}
		c.Sleep(8 * time.Minute)
		if n := atEither(c, []*clustertest.Block{removed}); n > 0 {
			t.Errorf("%d files of what its node has no more are kept", n)
		}
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, carried, 0)
		if again := c.Sent(0, 1) + c.Sent(0, 2) - ahead; again > 200_000 {
			t.Errorf("%d bytes were sent again, want next to none", again)
		}
		c.Kill(0)
		c.Sleep(140 * time.Second)
		c.Verify(1, blocks...)
		all := atEither(c, blocks)
		c.KillCoordinator() // peers cannot learn when the node went
		c.Sleep(5 * time.Minute)
		if n := atEither(c, blocks); n != all {
			t.Errorf("%d of %d files are there, and nobody said that their time is up", n, all)
		}
		c.RestartCoordinator() // it does not know how long the node stayed after it was DECOMMISSIONED
		c.Sleep(140 * time.Second)
		if n := atEither(c, blocks); n != all {
			t.Errorf("%d of %d files are there, and their node may have gone just now", n, all)
		}
		c.Sleep(80 * time.Second)
		if n := atEither(c, blocks); n > 0 {
			t.Errorf("%d files are still there when they were kept for long enough", n)
		}
	})
}

// A holder's engine removes landed blocks of a node that may go. The node notices and sends them again well before it leaves.
func TestWhatAHolderHasNoMoreIsCarriedAgain(t *testing.T) {
	for name, leave := range map[string]func(c *clustertest.Cluster){
		"advised": func(c *clustertest.Cluster) { c.Rebalance(0); c.Sleep(time.Minute) },
		"drained": func(c *clustertest.Cluster) { c.Decommission(0, 0, ""); c.WaitDrained(0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, calm(clustertest.Config{Agents: 4}), func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				leave(c)
				c.Sleep(2 * time.Minute) // it has asked the coordinator for the holders, and asks again 15 minutes later
				holder := slices.MaxFunc([]int{1, 2, 3}, func(a, b int) int { return cmp.Compare(len(landed(c, a)), len(landed(c, b))) })
				removeLanded(t, c, holder)
				c.Sleep(3 * time.Minute) // a minute until the holder notices, a minute until the node's next pass
				c.Kill(0)
				c.WaitState(0, map[string]string{"advised": "LOST", "drained": "DECOMMISSIONED"}[name])
				c.VerifyEverywhere(1+holder%3, 1+(holder+1)%3)
			})
		})
	}
}

// The same during a drain.
func TestWhatAHolderHasNoMoreIsCarriedAgainByTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow / 5}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 0, "")
		c.Until("some map outputs are moved", 3*time.Minute, func() bool { n, _ := c.Moved(0); return n >= 15 })
		c.Sleep(5 * time.Second)
		removeLanded(t, c, 1, 2)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Verify(1)
	})
}

// Blocks change while their node leaves and the coordinator is away. Once it is back, the holders of old versions give those up, and
// that is no reason to carry the new ones twice: their holders have yet to report them.
func TestOldVersionsThatAreGivenUpHaveNothingCarriedAgain(t *testing.T) {
	var said bytes.Buffer
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: 8 * slow, Log: &said}, func(t *testing.T, c *clustertest.Cluster) {
		const blocks = 400
		for n := range blocks {
			c.Write(0, "cache", fmt.Sprint("f-", n), 20_000)
		}
		c.Decommission(0, 5*time.Minute, "")
		c.Until("some have moved", time.Minute, func() bool { n, _ := c.Moved(0); return n >= 40 })
		rewrite := func(round int) {
			for n := round % 2; n < blocks; n += 2 {
				file := filepath.Join(c.Dir(0), "cache", fmt.Sprint("f-", n))
				if err := os.WriteFile(file, bytes.Repeat([]byte{byte(round)}, 20_000), 0o644); err != nil {
					t.Fatal(err)
				}
				c.Sleep(30 * time.Millisecond)
			}
		}
		rewrite(0)
		c.KillCoordinator()
		for round := range 4 {
			rewrite(round)
		}
		c.RestartCoordinator()
		for round := range 4 {
			rewrite(round)
		}
		c.WaitDrained(0)
	})
	if !strings.Contains(said.String(), "its copies are removed") {
		t.Error("no old version was given up")
	}
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "no node has them any more") {
			t.Error(line)
		}
	}
}

// landed returns the files of map outputs of node 0 in a node's directories: none where all that it took were cached blocks.
func landed(c *clustertest.Cluster, i int) []string {
	files, _ := filepath.Glob(filepath.Join(c.Dir(i), "spark-*", "*", "*", "shuffle_0_*"))
	return files
}

// removeLanded has the engines of nodes remove what landed in their directories.
func removeLanded(t *testing.T, c *clustertest.Cluster, nodes ...int) {
	t.Helper()
	n := 0
	for _, i := range nodes {
		for _, f := range landed(c, i) {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if n == 0 {
		t.Error("nothing was removed")
	}
}

// atEither returns how many of the blocks' files nodes 1 and 2 have.
func atEither(c *clustertest.Cluster, blocks []*clustertest.Block) (n int) {
	for _, b := range blocks {
		for id := range b.Members {
			one, _ := c.Read(1, id)
			other, _ := c.Read(2, id)
			if one == http.StatusOK || other == http.StatusOK {
				n++
			}
		}
	}
	return n
}

// A coordinator that starts with an empty disk has no reports yet: the node does not take the blocks that it sent for gone.
func TestNewCoordinatorHasNothingCarriedAgain(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		ahead := c.Sent(0, 1) + c.Sent(0, 2)
		c.KillCoordinator()
		c.Sleep(time.Second)
		c.RestartCoordinator()
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if again := c.Sent(0, 1) + c.Sent(0, 2) - ahead; again > 100_000 {
			t.Errorf("the drain sent %d bytes, want next to nothing", again)
		}
	})
}

// A drained node may stay for hours, with all blocks that it sent still on its disks.
func TestHolderIsGoneAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		dead, live := killHolder(c)
		c.Sleep(2 * time.Minute)
		if n := wasTaken(c, 0, dead); n > 0 {
			t.Errorf("%d blocks are said to be at the one that is gone", n)
		}
		if n := c.Show(0); n.State != "DECOMMISSIONED" {
			t.Errorf("got %s", n.State)
		}
		accounted(t, c, 0, blocks, 0)
		sent := c.Sent(0, live[0]) + c.Sent(0, live[1])
		c.Sleep(2 * time.Minute)
		if again := c.Sent(0, live[0]) + c.Sent(0, live[1]) - sent; again > 1_000_000 {
			t.Errorf("%d bytes were sent when all was held", again)
		}
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// The source's disks do not answer when the node asks whether what the dead holder had is still here: it asks again, and carries that as soon
// as they do.
func TestHolderIsGoneWhileTheDisksDoNotAnswer(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		stores := func(h disks.Health) {
			for _, dir := range []string{"cache", "spark-0", "spark-1"} {
				c.SetDisk(0, dir, h)
			}
		}
		stores(disks.IOHang)
		_, live := killHolder(c)
		c.Sleep(time.Minute)
		stores(disks.Healthy)
		c.Sleep(time.Minute)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// A holder dies while the source of its blocks still has some of its two minutes.
func TestHolderIsGoneBeforeTheReclaim(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		began := time.Now()
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		dead, live := killHolder(c)
		c.Sleep(time.Until(began.Add(115 * time.Second)))
		if n := wasTaken(c, 0, dead); n > 0 {
			t.Errorf("%d blocks are said to be at the one that is gone", n)
		}
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// A holder dies while the source of its blocks still sends, and will have no time left afterwards.
func TestHolderIsGoneAmidTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		for n := range 30 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("worth/less-%d", n), 2*fillSize))
		}
		c.Notice(0, 2*time.Minute)
		half(t, c, 0)
		_, live := killHolder(c)
		c.WaitDrained(0)
		m, entries := c.Manifest(0)
		for _, b := range blocks[:fillBlocks] {
			if e := entries[b.ID]; e.GetOutcome() != "moved" || e.Peer != c.Name(live[0]) && e.Peer != c.Name(live[1]) {
				t.Errorf("%s: got %v, want it at one that lives", b.ID, e)
			}
		}
		if m.Lost.GetBlocks() == 0 {
			t.Errorf("got %v, want too little time for all", m)
		}
		c.Kill(0)
		for _, i := range live {
			c.Verify(i, blocks[:fillBlocks]...)
		}
	})
}

// The holders leave and hand their blocks on: the source sends none of them again.
func TestHoldersLeaveAndHandOn(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		for _, taker := range []int{1, 2} {
			c.Notice(taker, 2*time.Minute)
		}
		for _, taker := range []int{1, 2} {
			c.WaitDrained(taker)
			c.Kill(taker)
		}
		sent := c.Sent(0, 3) + c.Sent(0, 4)
		c.Sleep(75 * time.Second)
		if again := c.Sent(0, 3) + c.Sent(0, 4) - sent; again > 100_000 {
			t.Errorf("%d bytes were carried again", again)
		}
		c.Kill(0)
		c.VerifyEverywhere(3, 4)
	})
}

// The agent of a drained node is killed while it sends the blocks of a dead holder again. Its manifest names each block once all the same.
func TestKilledWhileItCarriesAgain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		dead, _ := killHolder(c)
		again := fillBlocks + wasTaken(c, 0, dead) + 1
		_, entries := c.Manifest(0)
		i := slices.IndexFunc(blocks, func(b *clustertest.Block) bool {
			return strings.HasPrefix(b.ID, "cache/") && entries[b.ID].GetPeer() != c.Name(dead)
		})
		rewrite(t, c, blocks[i:i+1])
		blocks[i].Bytes = int64(len(blocks[i].Members[blocks[i].ID]))
		c.Partition(0, entries[blocks[i].ID].GetPeer()) // that peer must drop the old version: the node waits for it
		for limit := time.Now().Add(2 * time.Minute); linesOf(t, c, 0) < again && time.Now().Before(limit); {
			c.Sleep(time.Millisecond)
		}
		c.Kill(0) // between the last receipt and the end of the manifest
		c.Heal()
		c.Restart(dead) // all holders are there again
		c.Sleep(time.Minute)
		c.Restart(0)
		c.Sleep(3 * time.Minute)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// linesOf counts the lines about moved blocks that a node has written.
func linesOf(t *testing.T, c *clustertest.Cluster, i int) (n int) {
	t.Helper()
	accounts, err := filepath.Glob(filepath.Join(c.Dir(i), "data/incidents/*/moved.jsonl"))
	if err != nil || len(accounts) != 1 {
		t.Fatalf("accounts: %v, %v", accounts, err)
	}
	said, err := os.ReadFile(accounts[0])
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(said, []byte("\n"))
}

// A holder dies together with the coordinator, which has no reports when it is back. The node has little more than a minute, and learns in
// time that the blocks are gone.
func TestHolderAndCoordinatorDieTogether(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 80*time.Second)
		c.WaitDrained(0)
		dead, live := most(c, 0)
		c.Kill(dead)
		c.KillCoordinator()
		c.Sleep(time.Second)
		c.RestartCoordinator()
		c.Sleep(75 * time.Second)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(live[0], live[1])
	})
}
