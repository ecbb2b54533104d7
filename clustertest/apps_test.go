package clustertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
)

const (
	doneApp = "application_1700000000000_0001"
	liveApp = "application_1700000000000_0002"
)

// outputs puts ten map outputs of each of two applications on a node.
func outputs(c *clustertest.Cluster, i int) (done, live []*clustertest.Block) {
	for n := range 10 {
		done = append(done, c.WriteOf(doneApp, i, fmt.Sprintf("shuffle_0_%d_0", n), fillSize))
		live = append(live, c.WriteOf(liveApp, i, fmt.Sprintf("shuffle_0_%d_0", n), fillSize))
	}
	return done, live
}

// appNow returns an application as the coordinator shows it to an operator.
func appNow(t *testing.T, c *clustertest.Cluster, app string) *api.App {
	t.Helper()
	for _, a := range c.Apps() {
		if a.App == app {
			return a
		}
	}
	return &api.App{App: app}
}

// When an application is over nodes remove its landed blocks, and readers of them are told why. The other application's blocks stay.
func TestWhatLandedOfAnAppGoesWithIt(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		done, live := outputs(c, 0)
		c.Decommission(0, 0, "")
		c.WaitDrained(0)
		accounted(t, c, 0, slices.Concat(done, live), 0)
		c.Kill(0)
		c.Sleep(time.Minute)
		if a := appNow(t, c, doneApp); a.State != "UNKNOWN" || a.HeldBlocks != 10 || a.Holders < 1 {
			t.Errorf("before it is over: got %v", a)
		}
		c.EndApps("the scheduler says so", doneApp)
		c.Sleep(15 * time.Second)
		if a := appNow(t, c, doneApp); a.State != "OVER" || a.HeldBlocks != 0 {
			t.Errorf("15 s later: got %v", a)
		}
		if a := appNow(t, c, liveApp); a.State != "UNKNOWN" || a.HeldBlocks != 10 {
			t.Errorf("of the other: got %v", a)
		}
		c.Verify(1, live...)
		for _, b := range done {
			if code, body := c.Read(1, b.ID+".data"); code != 410 {
				t.Errorf("%s: got %d %s, want 410", b.ID, code, body)
			}
		}
		if why := c.Locate(done[0].ID).Why; !strings.Contains(why, "its app is over: operator:") || !strings.Contains(why, "the scheduler says so") {
			t.Errorf("got %q, want why it is gone", why)
		}
	})
}

// A leaving node does not carry the blocks of an application that is over.
func TestDrainLeavesBehindWhatIsOver(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		done, live := outputs(c, 0)
		c.EndApps("", doneApp)
		c.Decommission(0, 0, "")
		c.WaitDrained(0)
		sum, entries := c.Manifest(0)
		skipped := 0
		for _, b := range done { // the drain does not wait for the coordinator's answer: each of four lanes has sent a block or two by then
			if e := entries[b.ID]; e.Outcome == "skipped" && strings.Contains(e.Reason, "its app is over") {
				skipped++
			}
		}
		if skipped < 3 || int(sum.GetSkipped().GetBlocks()) != skipped || int(sum.GetMoved().GetBlocks()) != 20-skipped || sum.GetLost().GetBlocks() != 0 {
			t.Errorf("%d of %d blocks of what is over were left behind; in all %v", skipped, len(done), sum)
		}
		for _, b := range live {
			if e := entries[b.ID]; e.Outcome != "moved" {
				t.Errorf("%s is %s: %s", b.ID, e.Outcome, e.Reason)
			}
		}
	})
}

// An application ends while a node leaves that needs 40 s to send, half of it for that application's blocks: those that have not left by
// then stay.
func TestAppEndsDuringADrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow / 2}, func(t *testing.T, c *clustertest.Cluster) {
		done, live := outputs(c, 0)
		c.Decommission(0, 0, "")
		c.Sleep(10 * time.Second)
		c.EndApps("", doneApp)
		c.WaitDrained(0)
		sum, _ := c.Manifest(0)
		if skipped := sum.GetSkipped().GetBlocks(); skipped < 3 || sum.GetMoved().GetBlocks() != int64(len(done)+len(live))-skipped || sum.GetLost().GetBlocks() != 0 {
			t.Errorf("got %v, want the rest of what is over skipped", sum)
		}
		c.Verify(1, live...)
	})
}

// The peers are full of an application's blocks. It ends, and the notice comes five seconds later: removing its blocks has made room for
// those that leave now.
func TestEndOfAnAppMakesRoom(t *testing.T) {
	full := func(i int, cfg *agent.Config) {
		if i > 0 {
			cfg.Receive.MaxBytes = 13 * fillSize // of which a fifth is kept for drains without a coordinator
		}
	}
	bubble(t, clustertest.Config{Agents: 4, Agent: full}, func(t *testing.T, c *clustertest.Cluster) {
		var live []*clustertest.Block
		for n := range 20 {
			c.WriteOf(doneApp, 3, fmt.Sprintf("shuffle_0_%d_0", n), fillSize)
			live = append(live, c.WriteOf(liveApp, 0, fmt.Sprintf("shuffle_0_%d_0", n), fillSize))
		}
		c.Decommission(3, 0, "")
		c.WaitDrained(3)
		c.Kill(3)
		c.Sleep(30 * time.Second)
		c.EndApps("", doneApp)
		c.Sleep(5 * time.Second)
		c.Decommission(0, 10*time.Second, "")
		c.WaitDrained(0)
		accounted(t, c, 0, live, 0)
	})
}

// An operator ends the wrong application, and takes that back: its blocks are carried, and kept.
func TestAppThatIsNotOverAfterAll(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		done, live := outputs(c, 0)
		c.EndApps("a slip", doneApp)
		c.ResumeApps(doneApp)
		c.Decommission(0, 0, "")
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(5 * time.Minute)
		c.Verify(1, slices.Concat(done, live)...)
	})
}

// The same, but peers have removed its landed blocks before that. A node that copied them ahead, or that is drained and still there, is
// told and carries them again, even if its agent has restarted since.
func TestEndOfAnAppIsTakenBack(t *testing.T) {
	wait := func(slip time.Duration) func(c *clustertest.Cluster) {
		return func(c *clustertest.Cluster) { c.Sleep(slip) }
	}
	for name, leave := range map[string]func(c *clustertest.Cluster){
		"advised": func(c *clustertest.Cluster) { c.Rebalance(0); c.Sleep(time.Minute) },
		"drained": func(c *clustertest.Cluster) { c.Decommission(0, 0, ""); c.WaitDrained(0) },
	} {
		for after, slip := range map[string]func(c *clustertest.Cluster){ // until somebody sees the mistake
			"30 s":  wait(30 * time.Second), // some heartbeats
			"5 min": wait(5 * time.Minute),
			"it has left it behind, and starts anew": func(c *clustertest.Cluster) {
				c.Sleep(16 * time.Minute) // it checks what it carried every 15 minutes
				c.Kill(0)
				c.Restart(0)
				c.Sleep(time.Minute)
			},
		} {
			t.Run(name+", after "+after, func(t *testing.T) {
				bubble(t, calm(clustertest.Config{}), func(t *testing.T, c *clustertest.Cluster) {
					done, live := outputs(c, 0)
					leave(c)
					c.EndApps("a slip", doneApp)
					slip(c)
					if a := appNow(t, c, doneApp); a.HeldBlocks != 0 {
						t.Errorf("got %v, want nothing held of it", a)
					}
					c.ResumeApps(doneApp)
					c.Sleep(130 * time.Second)
					c.Kill(0)
					c.WaitState(0, map[string]string{"advised": "LOST", "drained": "DECOMMISSIONED"}[name])
					c.Verify(1, slices.Concat(done, live)...)
				})
			})
		}
	}
}

// An application that sends heartbeats is over when it falls silent, and not sooner because a coordinator was away.
func TestAppFallsSilent(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		beat := func(lease time.Duration) error { return c.BeatApp(liveApp, lease) }
		if err := beat(time.Minute); err != nil {
			t.Fatal(err)
		}
		c.Sleep(50 * time.Second)
		if a := appNow(t, c, liveApp); a.State != "RUNNING" || a.Owner == "" || a.Lease.AsDuration() != time.Minute || a.LastBeat.AsDuration() < 49*time.Second {
			t.Errorf("got %v, want it to run by its beat of 50 s ago", a)
		}
		c.KillCoordinator()
		c.RestartCoordinator()
		c.Sleep(50 * time.Second)
		if a := appNow(t, c, liveApp); a.State != "RUNNING" {
			t.Errorf("50 s after a restart: got %v, want a new lease", a)
		}
		if err := beat(time.Minute); err != nil {
			t.Fatal(err)
		}
		c.Sleep(50 * time.Second)
		if a := appNow(t, c, liveApp); a.State != "RUNNING" {
			t.Errorf("50 s after a beat: got %v", a)
		}
		c.Sleep(15 * time.Second)
		if a := appNow(t, c, liveApp); a.State != "OVER" || a.Why != "it was silent for 1m0s" {
			t.Errorf("65 s after its last beat: got %v", a)
		}
		if err := beat(time.Minute); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("it beats again: got %v, want a refusal", err)
		}
		c.ResumeApps(liveApp)
		if err := beat(time.Minute); err != nil {
			t.Errorf("an operator took it back: %v", err)
		}
	})
}

// While nodes fall silent by the dozen, the silence of an application does not mean that it is over.
func TestNoAppLapsesWhileABrakeHolds(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		if err := c.BeatApp(liveApp, 40*time.Second); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			c.Partition(i, clustertest.CoordinatorName(0))
		}
		c.Sleep(3 * time.Minute)
		if a := appNow(t, c, liveApp); a.State != "RUNNING" {
			t.Errorf("got %v, want it to run while a brake holds", a)
		}
		c.Heal()
		c.Sleep(2 * time.Minute)
		if a := appNow(t, c, liveApp); a.State != "OVER" {
			t.Errorf("all are back, and it is still silent: got %v", a)
		}
	})
}

// What is known of applications outlives the leader.
func TestAppsOutliveTheLeader(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3}, func(t *testing.T, c *clustertest.Cluster) {
		c.EndApps("finished", doneApp)
		for range 4 {
			if err := c.BeatApp(liveApp, time.Minute); err != nil {
				t.Fatal(err)
			}
			c.Sleep(40 * time.Second)
		}
		old := c.Leader()
		c.KillCoordinator(old)
		c.Leader(old)
		c.Sleep(40 * time.Second) // 80 s after its last heartbeat, which the new leader has not heard
		if a := appNow(t, c, doneApp); a.State != "OVER" || !strings.HasSuffix(a.Why, ": finished") {
			t.Errorf("got %v", a)
		}
		if a := appNow(t, c, liveApp); a.State != "RUNNING" || a.LastBeat != nil || a.Lease.AsDuration() != time.Minute {
			t.Errorf("got %v, want a lease, and no beat that the new leader has heard", a)
		}
		desk := c.Desk()
		defer desk.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := api.NewOperatorClient(desk).BeatApp(ctx, &api.BeatAppRequest{App: liveApp, Lease: durationpb.New(time.Second)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a lease of a second: got %v", err)
		}
	})
}
