package clustertest_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A node that may go gets no blocks, whatever kind of notice it is under.
func TestNodeUnderNoticeTakesNoBlocks(t *testing.T) {
	for name, notice := range map[string]func(c *clustertest.Cluster){
		"terminate": func(c *clustertest.Cluster) { c.Notice(1, 120*time.Second) },
		"rebalance": func(c *clustertest.Cluster) { c.Rebalance(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				notice(c)
				c.Sleep(8 * time.Second)
				want := []string{c.Name(2)}
				if name == "rebalance" {
					want = []string{c.Name(1), c.Name(2)} // should nobody else take them
				}
				if got := c.Peers(0); !slices.Equal(got, want) {
					t.Errorf("got the peers %v, want %v", got, want)
				}
				c.Notice(0, 120*time.Second)
				c.WaitDrained(0)
				if got, want := peersOf(accounted(t, c, 0, blocks, 0)), []string{c.Name(2)}; !slices.Equal(got, want) {
					t.Errorf("blocks went to %v, want %v", got, want)
				}
				if held := c.Status(1).Status.HeldBlocks; held != 0 {
					t.Errorf("a node under notice holds %d blocks", held)
				}
				if name == "rebalance" {
					n := c.Show(1)
					if n.State != "ACTIVE" || n.Schedulable || n.Status.Notice.GetKind() != "rebalance" || n.Status.Drain.GetPhase() != "pre-copy" {
						t.Errorf("got %v, want it copied ahead and not drained", n)
					}
					c.Withdraw(1)
					c.Sleep(15 * time.Second)
					if n := c.Show(1); !n.Schedulable || !slices.Contains(c.Peers(2), c.Name(1)) {
						t.Errorf("got %v and the peers %v, want it in service", n, c.Peers(2))
					}
				}
			})
		})
	}
}

// A sender that does not know yet of a peer's notice, because the coordinator is away, is refused by the peer, or told in the peer's greeting
// that it is advised to go, and prefers others.
func TestNodeUnderNoticeRefusesBlocks(t *testing.T) {
	for name, notice := range map[string]func(c *clustertest.Cluster){
		"terminate": func(c *clustertest.Cluster) { c.Notice(1, 120*time.Second) },
		"rebalance": func(c *clustertest.Cluster) { c.Rebalance(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.KillCoordinator()
				notice(c)
				c.Sleep(8 * time.Second)
				c.Notice(0, 120*time.Second)
				c.Until("the drain is over", 20*time.Second, func() bool { return c.Status(0).Manifest != nil })
				c.RestartCoordinator()
				c.WaitDrained(0)
				if got, want := peersOf(accounted(t, c, 0, blocks, 0)), []string{c.Name(2)}; !slices.Equal(got, want) {
					t.Errorf("blocks went to %v, want %v", got, want)
				}
			})
		})
	}
}

// The notice comes to a receiver in the middle of another node's drain: the blocks that it has not taken go elsewhere, and it hands on those
// that it has.
func TestReceiverComesUnderNotice(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Notice(1, 120*time.Second)
		c.WaitDrained(0)
		c.WaitDrained(1)
		for i := range 2 {
			if summary, _ := c.Manifest(i); summary.GetLost().GetBlocks() != 0 {
				t.Errorf("%s: got %v, want nothing lost", c.Name(i), summary)
			}
			c.Kill(i)
		}
		c.Verify(2)
	})
}

// spoken is a log that can be read while it is written.
type spoken struct {
	mu  sync.Mutex // guards all
	all strings.Builder
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// There is no peer: every block is named as lost, but not before time is up, and readers are told to compute them again.
func TestNobodyToSendTo(t *testing.T) {
	var log spoken
	bubble(t, clustertest.Config{Agents: 2, Log: &log}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Deactivate(false, 1)
		c.Sleep(8 * time.Second)
		c.Notice(0, 60*time.Second)
		if took := c.WaitDrained(0); took < 48*time.Second || took > 52*time.Second {
			t.Errorf("given up after %s, want 50 s: a peer may yet come", took)
		}
		accounted(t, c, 0, blocks, fillBlocks)
		if said := log.String(); !regexp.MustCompile(`msg=drained .*why="[0-9]+: [^"]+" see="lifeboat manifest ` + c.Name(0) + `"`).MatchString(said) {
			t.Errorf("the log does not say why a block is lost, nor where all are named:\n%s", said)
		}
		c.Kill(0)
		for _, b := range blocks {
			if got := c.Locate(b.ID); got.State != "lost" || len(got.Holders) > 0 {
				t.Errorf("locate %s: got %v, want it lost", b.ID, got)
			}
		}
		c.Sleep(30 * time.Second) // the machine is silent for good
		for _, b := range blocks {
			for id := range b.Members {
				if status, _ := c.Read(1, id); status != 410 {
					t.Errorf("read %s: got status %d, want 410", id, status)
				}
			}
		}
		if status, _ := c.Read(1, "cache/-/never/was"); status != 404 {
			t.Errorf("read what never was: got status %d, want 404", status)
		}
	})
}

// The only peer comes late, and is found.
func TestPeerComesLate(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Deactivate(false, 1)
		c.Sleep(8 * time.Second)
		c.Notice(0, 60*time.Second)
		c.Sleep(20 * time.Second)
		c.Deactivate(true, 1)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}
