package clustertest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

const engine = "engine.service"

// withEngine has every node know of an engine; only the nodes on which the test makes the unit have it.
func withEngine(change func(i int, w *agent.Workload)) clustertest.Config {
	return clustertest.Config{Agent: func(i int, cfg *agent.Config) {
		w := agent.Workload{Name: "engine", Type: "unit", Unit: engine, Await: true, Grace: 10 * time.Second}
		if change != nil {
			change(i, &w)
		}
		cfg.Workloads = []agent.Workload{w}
	}}
}

func stops(_ int, w *agent.Workload) { w.Stop = true }

// engineState returns the state of a node's engine as the coordinator knows it.
func engineState(c *clustertest.Cluster, i int) string {
	for _, w := range c.Show(i).GetStatus().GetWorkloads() {
		return w.State
	}
	return ""
}

// A node that is ordered to leave copies its blocks at once, stays until its engine is done, and then carries what the engine wrote meanwhile.
func TestOrderWaitsForTheWorkload(t *testing.T) {
	bubble(t, withEngine(nil), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		c.Sleep(3 * time.Second)
		if got := engineState(c, 0); got != "RUNNING" {
			t.Errorf("before the order the engine is %q, want RUNNING", got)
		}
		blocks := fill(c, 0)
		c.Decommission(0, 10*time.Minute, "")
		c.Until("all that is there is copied", 20*time.Second, func() bool { n, _ := c.Moved(0); return n == fillBlocks })
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.SubState != "WAIT_WORKLOAD" {
			t.Errorf("got %s %s, want it to wait for its workload", n.State, n.SubState)
		}
		if s := c.Status(0); len(s.WaitsFor) != 1 || !strings.Contains(s.WaitsFor[0], "engine") {
			t.Errorf("the node says that it waits for %q, want its engine", s.WaitsFor)
		}
		c.Sleep(3 * time.Minute)
		blocks = append(blocks, c.Write(0, "cache", "written-late", fillSize))
		c.Until("what was written late is copied while the engine runs", 90*time.Second, func() bool { n, _ := c.Moved(0); return n == fillBlocks+1 })
		blocks = append(blocks, c.Write(0, "cache", "written-last", fillSize))
		unit.End()
		if took := c.WaitDrained(0); took > 10*time.Second {
			t.Errorf("drained %s after the engine ended, want a moment", took)
		}
		c.Until("the engine is DONE", 5*time.Second, func() bool { return engineState(c, 0) == "DONE" })
		if _, stops, kills := unit.Ended(); stops+kills != 0 {
			t.Errorf("it was told to stop %d times and killed %d times, want neither", stops, kills)
		}
		accounted(t, c, 0, blocks, 0)
		c.VerifyEverywhere(1, 2)
	})
}

// An order without a limit waits for ever, whatever drain.timeout says.
func TestOrderWithoutALimitWaits(t *testing.T) {
	cfg := withEngine(stops)
	change := cfg.Agent
	cfg.Agent = func(i int, a *agent.Config) { change(i, a); a.Drain.Timeout = 30 * time.Second }
	bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
		c.Sleep(2 * time.Minute)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.SubState != "WAIT_WORKLOAD" {
			t.Errorf("got %s %s, want it to wait for its workload", n.State, n.SubState)
		}
		if ended, stops, _ := unit.Ended(); ended || stops > 0 {
			t.Error("the engine was stopped, and nobody was in a hurry")
		}
		unit.End()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
	})
}

// A node without a deadline has all of drain.timeout for what is left when its engine ends, however long it has waited, even if the engine
// ends during a pass, or the agent has restarted since.
func TestTimeBeginsWhenTheWorkloadEnds(t *testing.T) {
	for name, killed := range map[string]bool{"amid a pass": false, "and a crash": true} {
		t.Run(name, func(t *testing.T) {
			cfg := withEngine(stops)
			change := cfg.Agent
			cfg.BytesPerSecond, cfg.Agent = slow, func(i int, a *agent.Config) { change(i, a); a.Drain.Timeout = time.Minute }
			bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
				unit := c.Unit(0, engine)
				c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
				c.Sleep(2 * time.Minute)
				blocks := fill(c, 0)
				c.Until("a pass has begun", 2*time.Minute, func() bool { n, _ := c.Moved(0); return n > 5 })
				unit.End()
				if killed {
					c.Sleep(5 * time.Second)
					c.Kill(0)
					c.Restart(0)
				}
				c.WaitDrained(0)
				accounted(t, c, 0, blocks, 0)
			})
		})
	}
}

// An engine that ignores the notice is asked to end, and killed after its grace; what it wrote until then is carried before the deadline.
func TestStubbornWorkloadIsStoppedInTime(t *testing.T) {
	for _, s := range []struct {
		name  string
		leave func(c *clustertest.Cluster)
		tail  time.Duration
	}{
		{"order", func(c *clustertest.Cluster) { c.Decommission(0, 2*time.Minute, "") }, 5 * time.Second},
		{"notice", func(c *clustertest.Cluster) { c.Notice(0, 2*time.Minute) }, 10 * time.Second},
	} {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
				unit := c.Unit(0, engine)
				unit.Defy()
				blocks := fill(c, 0)
				began := time.Now()
				s.leave(c)
				// A tenth of the two minutes is for the last pass.
				last := 2*time.Minute - s.tail - 12*time.Second
				asked := func() bool { _, stops, _ := unit.Ended(); return stops > 0 }
				c.Until("the engine is asked to end", 2*time.Minute, asked)
				if got, want := time.Since(began), last-10*time.Second; (got - want).Abs() > 2*time.Second {
					t.Errorf("asked %s after the word, want %s", got, want)
				}
				c.Until("the engine is STOPPING", 2*time.Second, func() bool { return engineState(c, 0) == "STOPPING" })
				c.Sleep(7 * time.Second)
				blocks = append(blocks, c.Write(0, "cache", "last-words", fillSize))
				if ended, _, _ := unit.Ended(); ended {
					t.Error("it was killed within its grace")
				}
				c.Until("the engine is killed", 5*time.Second, func() bool { ended, _, _ := unit.Ended(); return ended })
				if got := time.Since(began); (got - last).Abs() > 2*time.Second {
					t.Errorf("killed %s after the word, want %s", got, last)
				}
				c.WaitDrained(0)
				if took := time.Since(began); took > 2*time.Minute-s.tail {
					t.Errorf("drained %s after the word, want it before the tail", took)
				}
				if _, stops, kills := unit.Ended(); stops != 1 || kills != 1 {
					t.Errorf("asked %d times, killed %d times, want once each", stops, kills)
				}
				c.Until("the engine is KILLED", 5*time.Second, func() bool { return engineState(c, 0) == "KILLED" })
				accounted(t, c, 0, blocks, 0)
			})
		})
	}
}

// Time is up while the node still waits for its engine, in a pass that another one was to follow. The account says of each block what stood
// in the way all along.
func TestTimeIsUpWhileTheNodeWaits(t *testing.T) {
	cfg := withEngine(nil)
	change := cfg.Agent
	cfg.Agent = func(i int, a *agent.Config) { change(i, a); a.Receive.MaxBytes = 5 * fillSize }
	bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
		c.Unit(0, engine)
		blocks := fill(c, 0)
		c.Decommission(0, 30*time.Second, "")
		c.WaitDrained(0)
		_, entries := c.Manifest(0)
		lost := int64(0)
		for _, e := range entries {
			if e.Outcome != "lost" {
				continue
			}
			lost++
			if !strings.HasPrefix(e.Reason, "the deadline came first: ") || !strings.Contains(e.Reason, "room") && !strings.Contains(e.Reason, "quota") {
				t.Errorf("%s is lost for %q, want it lost for the peers were full", e.Id, e.Reason)
			}
		}
		if lost == 0 || lost == fillBlocks {
			t.Errorf("%d of %d blocks are lost, want some", lost, fillBlocks)
		}
		accounted(t, c, 0, blocks, lost)
	})
}

// A deadline that moves while a workload has its grace moves the end of that.
func TestDeadlineMovesAmidTheGrace(t *testing.T) {
	const grace = time.Minute
	for name, s := range map[string]struct {
		limit, after time.Duration // of the order, and how long after SIGTERM the deadline moves
		move         func(c *clustertest.Cluster)
		killed       time.Duration // after that
	}{
		"nearer":       {10 * time.Minute, 5 * time.Second, func(c *clustertest.Cluster) { c.Notice(0, 40*time.Second) }, 26 * time.Second},
		"further away": {20 * time.Second, 5 * time.Second, func(c *clustertest.Cluster) { c.Decommission(0, 10*time.Minute, "") }, grace - 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, withEngine(func(_ int, w *agent.Workload) { w.Stop, w.Grace = true, grace }), func(t *testing.T, c *clustertest.Cluster) {
				unit := c.Unit(0, engine)
				unit.Defy()
				c.Sleep(3 * time.Second)
				c.Decommission(0, s.limit, "")
				c.Until("the engine is asked to end", s.limit, func() bool { _, stops, _ := unit.Ended(); return stops > 0 })
				c.Sleep(s.after)
				s.move(c)
				took := c.Until("the engine is killed", 2*grace, func() bool { ended, _, _ := unit.Ended(); return ended })
				if (took - s.killed).Abs() > 3*time.Second {
					t.Errorf("killed %s after the deadline moved, want %s", took, s.killed)
				}
			})
		})
	}
}

// A longer tail, by SIGHUP amid the drain, has a workload stopped so much earlier.
func TestReloadMovesTheEndOfAWorkload(t *testing.T) {
	cfg, engines := agent.Config{}, withEngine(stops)
	with := engines.Agent
	engines.Agent = func(i int, c *agent.Config) {
		if with(i, c); i == 0 {
			cfg = *c
		}
	}
	bubble(t, engines, func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		fill(c, 0)
		began := time.Now()
		c.Notice(0, 2*time.Minute)
		c.Sleep(20 * time.Second)
		cfg.Drain.Tail = time.Minute
		c.Agent(0).Reload(cfg)
		c.Until("the engine is asked to end", 2*time.Minute, func() bool { _, stops, _ := unit.Ended(); return stops > 0 })
		// Its grace before the last pass, which has a tenth of the two minutes.
		if got, want := time.Since(began), time.Minute-12*time.Second-10*time.Second; (got - want).Abs() > 2*time.Second {
			t.Errorf("asked %s after the notice, want %s", got, want)
		}
		c.WaitDrained(0)
	})
}

// After a crash of the agent between SIGTERM and SIGKILL the workload is not asked twice, and is still killed.
func TestStoppingSurvivesACrash(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		unit.Defy()
		blocks := fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.Until("the engine is asked to end", 2*time.Minute, func() bool { _, stops, _ := unit.Ended(); return stops > 0 })
		c.Sleep(time.Second)
		c.Kill(0)
		c.Sleep(2 * time.Second)
		c.Restart(0)
		c.WaitDrained(0)
		if ended, stops, kills := unit.Ended(); !ended || stops != 1 || kills != 1 {
			t.Errorf("ended %t, asked %d times, killed %d times, want once each", ended, stops, kills)
		}
		accounted(t, c, 0, blocks, 0)
	})
}

// A restart of the agent stops no workload, whatever is under way, and waits on.
func TestRestartStopsNoWorkload(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		fill(c, 0)
		c.Decommission(0, 10*time.Minute, "")
		c.Until("the node waits", 20*time.Second, func() bool { return c.Show(0).SubState == "WAIT_WORKLOAD" })
		c.Stop(0)
		c.Sleep(2 * time.Second)
		c.Restart(0)
		c.Sleep(20 * time.Second)
		if ended, stops, _ := unit.Ended(); ended || stops > 0 {
			t.Error("the engine was stopped by a restart of the agent")
		}
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.SubState != "WAIT_WORKLOAD" {
			t.Errorf("got %s %s, want it to wait on", n.State, n.SubState)
		}
		unit.End()
		c.WaitDrained(0)
	})
}

// A machine that went in the middle of its drain, or after it, comes back: nobody tells or stops the engine that runs there now for the
// notice of old, before the cloud has said anything. Nor does an agent that was away until the machine had outlived its deadline.
func TestMachineThatIsBackStopsNoWorkload(t *testing.T) {
	for _, s := range []struct {
		name    string
		drained bool
		off     time.Duration
		back    func(c *clustertest.Cluster, i int)
	}{
		{"amid the drain", false, 5 * time.Minute, (*clustertest.Cluster).Reboot},
		{"drained", true, 5 * time.Minute, (*clustertest.Cluster).Reboot},
		{"outlived", false, 30 * time.Minute, (*clustertest.Cluster).Restart},
	} {
		t.Run(s.name, func(t *testing.T) {
			cfg := withEngine(func(_ int, w *agent.Workload) { w.Stop, w.Tell.Unit = true, "stop" })
			bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
				unit := c.Unit(0, engine)
				unit.Defy()
				c.Sleep(3 * time.Second)
				fill(c, 0)
				c.Cloud(0).Interrupt("stop", time.Now().Add(2*time.Minute))
				if c.Sleep(20 * time.Second); s.drained {
					unit.End()
					c.WaitDrained(0)
				}
				c.Kill(0)
				c.Withdraw(0)
				c.Sleep(s.off)
				unit = c.Unit(0, engine)
				s.back(c, 0)
				c.Sleep(20 * time.Second)
				if _, stops, kills := unit.Ended(); stops+kills > 0 {
					t.Errorf("the engine was told to stop %d times and killed %d times, want neither", stops, kills)
				}
				if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable || n.Status.Notice != nil || len(c.Status(0).Notices) > 0 {
					t.Errorf("got %v, want it in service", n)
				}
			})
		})
	}
}

// If the order is taken back while the node waits, no workload is stopped; a rehearsal waits for workloads, and stops none.
func TestWithdrawnAndRehearsedStopNobody(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		c.Notice(0, 2*time.Minute)
		c.Sleep(60 * time.Second)
		c.Withdraw(0)
		c.Sleep(2 * time.Minute)
		reply := c.Simulate(0, preemption.KindTerminate, time.Minute, false)
		if !slices.ContainsFunc(reply.Actions, func(line string) bool { return strings.Contains(line, "not at a rehearsal") }) {
			t.Errorf("got the plan %q, want it to say that a rehearsal stops nobody", reply.Actions)
		}
		c.Sleep(2 * time.Minute)
		if ended, stops, _ := unit.Ended(); ended || stops > 0 {
			t.Error("the engine was stopped")
		}
		if n := c.Show(0); n.State != "ACTIVE" {
			t.Errorf("got %s, want it back in service", n.State)
		}
	})
}

// A workload that does not answer is not done: the node waits for it as for one that runs, but not beyond the deadline.
func TestSilentWorkloadIsNotDone(t *testing.T) {
	bubble(t, withEngine(nil), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		unit.Silence()
		blocks := fill(c, 0)
		began := time.Now()
		c.Notice(0, 2*time.Minute)
		c.Sleep(60 * time.Second)
		if got := engineState(c, 0); got != "UNKNOWN" {
			t.Errorf("the engine is %q, want UNKNOWN", got)
		}
		if n := c.Show(0); n.SubState != "WAIT_WORKLOAD" {
			t.Errorf("got %s, want WAIT_WORKLOAD", n.SubState)
		}
		c.WaitDrained(0)
		if took := time.Since(began); took < 90*time.Second || took > 110*time.Second {
			t.Errorf("drained %s after the notice, want it at its last moment", took)
		}
		accounted(t, c, 0, blocks, 0)
	})
}

// An order keeps a node whose apps run elsewhere; a notice does not.
func TestOrderWaitsForApps(t *testing.T) {
	apps := func(i int, w *agent.Workload) {
		if i < 2 {
			w.List = []string{"/bin/echo", "app-1"}
		}
	}
	bubble(t, withEngine(apps), func(t *testing.T, c *clustertest.Cluster) {
		here, there := c.Unit(0, engine), c.Unit(1, engine)
		blocks := fill(c, 0)
		c.Until("the apps are listed", time.Minute, func() bool {
			return !slices.ContainsFunc([]int{0, 1}, func(i int) bool {
				all := c.Show(i).GetStatus().GetWorkloads()
				return len(all) == 0 || !slices.Equal(all[0].Apps, []string{"app-1"})
			})
		})
		c.Decommission(0, time.Hour, "")
		c.Sleep(5 * time.Second)
		here.End()
		waits := func(n *api.Node) bool { return n.State == "DECOMMISSIONING" && n.SubState == "WAIT_APP" }
		c.Until("the node waits for the app", 10*time.Second, func() bool { return waits(c.Show(0)) })
		c.Sleep(5 * time.Minute)
		if n := c.Show(0); !waits(n) {
			t.Errorf("got %s %s, want WAIT_APP as long as the app runs elsewhere", n.State, n.SubState)
		}
		there.End()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
	})
}
