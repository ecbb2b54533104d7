package clustertest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/systemd"
)

// event is an EC2 event that begins that far ahead.
func event(code string, ahead time.Duration) ec2fake.Event {
	return ec2fake.Event{Code: code, Description: "degraded", EventID: "instance-event-1", State: "active", NotBefore: ec2fake.EventTime(time.Now().Add(ahead))}
}

// Advice may stand for as long as the machine lives. An order without a deadline that comes later gives the node the time of a drain from
// then on.
func TestTimeBeginsWithTheOrderAndNotWithTheAdvice(t *testing.T) {
	advice := map[string]func(*clustertest.Cluster){
		"rebalance":   func(c *clustertest.Cluster) { c.Rebalance(0) },
		"next week's": func(c *clustertest.Cluster) { c.Cloud(0).Schedule(event("system-reboot", 7*24*time.Hour)) },
	}
	orders := map[string]func(*clustertest.Cluster){
		"the operator": func(c *clustertest.Cluster) { c.Decommission(0, 0, "test") },
		"SIGPWR":       func(c *clustertest.Cluster) { c.DecommissionSelf(0, preemption.SourceSignal, 0, "SIGPWR") },
		"scale-in":     func(c *clustertest.Cluster) { c.Cloud(0).Lifecycle("Terminated") },
	}
	for said, advise := range advice {
		for by, order := range orders {
			t.Run(said+", then "+by, func(t *testing.T) {
				cfg := clustertest.Config{Agent: func(_ int, cfg *agent.Config) { cfg.Drain.Timeout = time.Minute }}
				bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
					advise(c)
					c.Sleep(2 * time.Minute)
					fill(c, 0)
					order(c)
					c.WaitDrained(0)
					if m, _ := c.Manifest(0); m.Lost.GetBlocks() > 0 || m.Moved.GetBlocks() == 0 {
						t.Errorf("of %v moved %v and lost %v", m.Total, m.Moved, m.Lost)
					}
				})
			})
		}
	}
}

// The reclaim comes a while after the advice, with its two minutes: the engine has as much of them as without the advice.
func TestWorkloadHasItsTimeAfterAdvice(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		unit.Defy()
		fill(c, 0)
		c.Rebalance(0)
		c.Sleep(5 * time.Minute)
		began := time.Now()
		c.Notice(0, 2*time.Minute)
		c.Until("the engine is asked to end", 2*time.Minute, func() bool { _, stops, _ := unit.Ended(); return stops > 0 })
		asked := time.Since(began)
		c.Until("the engine is killed", 2*time.Minute, func() bool { ended, _, _ := unit.Ended(); return ended })
		if killed := time.Since(began); asked < 80*time.Second || killed-asked < 9*time.Second {
			t.Errorf("asked %s and killed %s after the notice, want it late in the two minutes, and its grace of 10 s between", asked, killed)
		}
	})
}

// The cloud will take the machine in ten days. An order that is taken back before that has the node stay until then.
func TestOrderIsTakenBackBeforeAnAppointment(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Cloud(0).Schedule(event("instance-stop", 10*24*time.Hour))
		c.Sleep(2 * time.Minute)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		c.Recommission(0)
		c.WaitState(0, "ACTIVE")
		c.Sleep(time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" {
			t.Errorf("got %s, want it in service until the appointment", n.State)
		}
	})
}

// The agent is killed after it has written down that an order is taken back, and before it acts on that.
func TestKilledAmidATakingBack(t *testing.T) {
	for what, advise := range map[string]func(*clustertest.Cluster){
		"nothing else stands":     func(*clustertest.Cluster) {},
		"an appointment stands":   func(c *clustertest.Cluster) { c.Cloud(0).Schedule(event("instance-stop", 10*24*time.Hour)) },
		"a rebalancing is wished": func(c *clustertest.Cluster) { c.Rebalance(0) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				advise(c)
				c.Sleep(2 * time.Minute)
				c.Decommission(0, 0, "test")
				c.WaitDrained(0)
				c.Kill(0)
				page := filepath.Join(c.Dir(0), "data", "incident.json")
				b, err := os.ReadFile(page)
				if err != nil {
					t.Fatal(err)
				}
				order := []byte(`"source": "operator",`)
				if !bytes.Contains(b, order) {
					t.Fatalf("no order in %s", b)
				}
				if err := os.WriteFile(page, bytes.Replace(b, order, append(order, `"withdrawn": true,`...), 1), 0o600); err != nil {
					t.Fatal(err)
				}
				c.Recommission(0)
				c.Restart(0)
				c.WaitState(0, "ACTIVE")
				c.Sleep(time.Minute)
				if n := c.Show(0); n.State != "ACTIVE" {
					t.Errorf("got %s, want it in service", n.State)
				}
				c.DecommissionSelf(0, preemption.SourceSignal, 0, "SIGPWR")
				c.WaitDrained(0)
			})
		})
	}
}

// A machine that is empty already has nothing to do when it is shut down, and does not hold that up.
func TestEmptyNodeIsShutDownAtOnce(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		c.Sleep(time.Minute)
		if lock, stop := c.ShutDown(0, systemd.HowPowerOff); lock > time.Second || stop > time.Second {
			t.Errorf("the host was held up for %s and %s", lock, stop)
		}
	})
}

// A workload that still runs when time is up is no success: the manifest says so, and a shutdown is held up for as long as it may be.
func TestAccountNamesTheWorkloadThatWentOn(t *testing.T) {
	bubble(t, withEngine(nil), func(t *testing.T, c *clustertest.Cluster) {
		c.Unit(0, engine)
		fill(c, 0)
		c.Sleep(3 * time.Second)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		if m, _ := c.Manifest(0); m.Lost.GetBlocks() > 0 || len(m.Unfinished) != 1 {
			t.Errorf("got %v, want nothing lost and the engine named", m)
		}
		if lock, _ := c.ShutDown(0, systemd.HowPowerOff); lock < 4*time.Second {
			t.Errorf("a shutdown was held up for %s, want as long as it may be, with the engine running", lock)
		}
	})
}

// An event's start is the earliest instant, and it may have no end. A node that is empty by then stays so while the event is active.
func TestNodeStaysAwayWhileAnEventStands(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Cloud(0).Schedule(event("instance-stop", 5*time.Minute))
		c.WaitState(0, "DECOMMISSIONED")
		c.Sleep(16 * time.Minute) // it would be back ten after the start
		if n := c.Show(0); n.State != "DECOMMISSIONED" {
			t.Errorf("got %s, want it empty still", n.State)
		}
	})
}
