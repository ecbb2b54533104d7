package clustertest_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

// rewrite replaces the bytes of each file of node 0's cache among the blocks, by more.
func rewrite(t *testing.T, c *clustertest.Cluster, blocks []*clustertest.Block) {
	t.Helper()
	for i, b := range blocks {
		name, is := strings.CutPrefix(b.ID, "cache/-/")
		if !is {
			continue
		}
		b.Members[b.ID] = bytes.Repeat([]byte{byte(i)}, len(b.Members[b.ID])*5/4)
		if err := os.WriteFile(filepath.Join(c.Dir(0), "cache", name), b.Members[b.ID], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// goes has node 0 leave, and reads all blocks at the others.
func goes(c *clustertest.Cluster, others ...int) {
	c.Notice(0, 2*time.Minute)
	c.WaitDrained(0)
	c.Kill(0)
	c.VerifyEverywhere(others...)
}

// A holder was away while its blocks were sent again elsewhere, and is back with them. Then they change.
func TestHolderIsBackBesideWhoeverTookItsPlace(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		away, _ := killHolder(c)
		c.Sleep(2 * time.Minute) // they are carried again
		c.Restart(away)
		c.Sleep(time.Minute)
		rewrite(t, c, blocks)
		c.Sleep(2 * time.Minute)
		goes(c, 1, 2, 3)
	})
}

// A holder was away while its blocks changed, and is back with the old versions.
func TestHolderIsBackWithWhatTheyWere(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		away, _ := killHolder(c)
		rewrite(t, c, blocks)
		c.Sleep(2 * time.Minute)
		c.Restart(away)
		c.Sleep(time.Minute)
		goes(c, 1, 2, 3)
	})
}

// The same, but the holder is back only once the node is drained.
func TestHolderIsBackAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		away, live := killHolder(c)
		rewrite(t, c, blocks)
		c.Sleep(2 * time.Minute)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Restart(away)
		c.Sleep(30 * time.Second)
		c.Kill(0)
		c.VerifyEverywhere(away, live[0], live[1])
	})
}

// A holder was to leave, handed its blocks on, and stays after all: two nodes have them when they change.
func TestHolderHandedOnAndStays(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		holder, _ := most(c, 0)
		c.Notice(holder, 2*time.Minute)
		c.WaitDrained(holder)
		c.Withdraw(holder)
		c.WaitState(holder, "ACTIVE")
		c.Sleep(time.Minute)
		rewrite(t, c, blocks)
		c.Sleep(2 * time.Minute)
		goes(c, 1, 2, 3)
	})
}

// After a node copied blocks ahead another machine comes under its name, and its engines write other blocks of the same names. It does not
// know which versions peers have.
func TestAnotherMachineOfTheNameHasOthersOfTheSameNames(t *testing.T) {
	for name, dirs := range map[string][]string{"nothing is left of it": {"data", "cache"}, "its files are left": {"data"}, "who has copies rehearses": {"data", "cache"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := copiedAhead(c)
				holder, _ := most(c, 0)
				c.Withdraw(0)
				c.Sleep(time.Minute)
				c.Kill(0)
				for _, dir := range dirs {
					dir = filepath.Join(c.Dir(0), dir)
					if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, c.Name(0)), 0o755)); err != nil {
						t.Fatal(err)
					}
				}
				c.Restart(0)
				c.Sleep(time.Minute)
				rewrite(t, c, blocks)
				c.Sleep(5 * time.Minute)
				c.Kill(0)
				c.Restart(0)
				c.Sleep(time.Minute)
				if strings.Contains(name, "rehearses") {
					c.Simulate(holder, preemption.KindTerminate, 10*time.Minute, false)
					c.WaitDrained(holder)
					c.Sleep(time.Minute)
				}
				goes(c, 1, 2, 3)
			})
		})
	}
}
