package clustertest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

var keptForTenMinutes = clustertest.Config{Agent: func(_ int, cfg *agent.Config) { cfg.Receive.Keep = 10 * time.Minute }}

// Landed blocks were kept for long enough and removed, and their source is gone: readers are told to compute them again, and why, at
// whichever node. A name that was never known gets another answer.
func TestWhatIsKeptForLongEnoughIsLost(t *testing.T) {
	bubble(t, calm(keptForTenMinutes), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Kill(0)
		c.VerifyEverywhere(1, 2)
		c.Sleep(12 * time.Minute)
		for i := 1; i < 3; i++ {
			for _, b := range blocks {
				for id := range b.Members {
					if status, body := c.Read(i, id); status != http.StatusGone || !strings.Contains(string(body), "removed it: it was kept for 10m0s") {
						t.Errorf("read %s at %s: got %d, %s", id, c.Name(i), status, body)
					}
				}
			}
			if status, _ := c.Read(i, "cache/-/never"); status != http.StatusNotFound {
				t.Errorf("what nobody ever had: got %d, want 404", status)
			}
		}
		c.KillCoordinator()
		c.RestartCoordinator()
		c.Sleep(time.Minute)
		if status, _ := c.Read(1, blocks[0].ID); status != http.StatusNotFound {
			t.Errorf("after another leader: got %d, want 404", status)
		}
	})
}

// While all holders of a block are away it is read from its source, which leaves and is still there.
func TestHoldersThatAreAwayAreNotWaitedFor(t *testing.T) {
	for name, away := range map[string]func(c *clustertest.Cluster, holder int){
		"stopped": func(c *clustertest.Cluster, holder int) { c.Stop(holder); c.Sleep(2 * time.Second) },
		"killed":  func(c *clustertest.Cluster, holder int) { c.Kill(holder); c.Sleep(20 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				b := c.Write(0, "cache", "part", 200_000)
				c.Notice(0, 120*time.Second)
				c.WaitDrained(0)
				got := c.Locate(b.ID)
				if len(got.Holders) != 1 || len(got.Candidates) > 0 {
					t.Fatalf("got %v, want one holder and nobody else to ask", got)
				}
				holder, reader := 1, 2
				if got.Holders[0].Node == c.Name(2) {
					holder, reader = 2, 1
				}
				c.Kill(holder)
				c.Verify(reader, b) // nobody knows yet
				c.Restart(holder)
				c.Sleep(10 * time.Second)
				away(c, holder)
				if got := c.Locate(b.ID); got.State != "held" || len(got.Candidates) == 0 || got.Candidates[0].Node != c.Name(0) {
					t.Errorf("got %v, want its holder, and the source to be asked", got)
				}
				c.Verify(reader, b)
				c.Restart(holder)
				c.Until("the holder is back", time.Minute, func() bool { return len(c.Locate(b.ID).Candidates) == 0 })
				c.Verify(reader, b)
			})
		})
	}
}

// A block that a peer removed is read from its source while that stays. Once the source is gone the block is lost, until it is computed
// again.
func TestWhatEndedIsReadFromItsSource(t *testing.T) {
	bubble(t, calm(keptForTenMinutes), func(t *testing.T, c *clustertest.Cluster) {
		b := c.Write(0, "cache", "part", 200_000)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Withdraw(0)
		c.WaitState(0, "ACTIVE")
		c.Sleep(12 * time.Minute)
		if got := c.Locate(b.ID); len(got.Holders) > 0 || got.Why == "" || got.Candidates[0].Node != c.Name(0) {
			t.Errorf("got %v, want no holder, why, and the source to be asked first", got)
		}
		c.Verify(1, b)
		c.Kill(0)
		if status, _ := c.Read(1, b.ID); status != http.StatusServiceUnavailable {
			t.Errorf("the source may come back: got %d, want 503", status)
		}
		c.Sleep(time.Minute)
		if status, _ := c.Read(1, b.ID); status != http.StatusGone {
			t.Errorf("the source is gone: got %d, want 410", status)
		}
		c.Write(2, "cache", "part", 200_000)
		if status, _ := c.Read(1, b.ID); status != http.StatusOK {
			t.Errorf("it was computed again: got %d", status)
		}
	})
}

// Nodes that live for less than receive.keep hand a block on to each other. It is kept from when its own node went, and not anew by each of
// them, for else it would be kept for ever.
func TestWhatIsHandedOnIsKeptFromWhenItsNodeWent(t *testing.T) {
	cfg := keptForTenMinutes
	cfg.Agents = 4
	bubble(t, calm(cfg), func(t *testing.T, c *clustertest.Cluster) {
		block := c.Write(0, "cache", "x", 1000)
		leave := func(i int) {
			c.Decommission(i, time.Minute, "")
			c.WaitDrained(i)
			c.Kill(i)
		}
		leave(0)
		c.Sleep(6 * time.Minute)
		for i := 1; i < 4; i++ {
			if c.Locate(block.ID).Holders[0].Node == c.Name(i) {
				leave(i)
				break
			}
		}
		c.Sleep(2 * time.Minute)
		if r := c.Locate(block.ID); r.State != "held" {
			t.Errorf("8 minutes after its node went: got %v, want it held", r)
		}
		c.Sleep(4 * time.Minute)
		if r := c.Locate(block.ID); r.State != "lost" {
			t.Errorf("12 minutes after its node went: got %v, want it removed", r)
		}
	})
}
