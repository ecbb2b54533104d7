package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

// A rebalance recommendation comes well ahead of the notice, if a notice comes at all. By then the node has copied all of its blocks
// elsewhere at a low rate, and stayed in service. The notice's two minutes are only for what is written after that.
func TestRebalanceCopiesAheadOfTheNotice(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Rebalance(0)
		c.Sleep(30 * time.Second)
		n := c.Show(0)
		if n.State != "ACTIVE" || n.Schedulable || n.Status.Notice.GetStance() != "pre-copy" {
			t.Errorf("got %v, want it active, and offered to nobody", n)
		}
		if moved, _ := c.Moved(0); moved != int64(len(blocks)) {
			t.Errorf("%d blocks were copied ahead, want %d", moved, len(blocks))
		}
		c.Verify(0, blocks[0]) // the node still serves reads
		ahead := c.Sent(0, 1) + c.Sent(0, 2)

		late := c.Write(0, "cache", "late", 1000)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		if again := c.Sent(0, 1) + c.Sent(0, 2) - ahead; again > 100_000 {
			t.Errorf("the drain sent %d bytes, want little more than the one new block", again)
		}
		accounted(t, c, 0, append(blocks, late), 0)
		c.Kill(0)
		c.Verify(1)
	})
}

// Most recommendations come to nothing. The node goes on in service, and a block that changed since is carried in its new version.
func TestRebalanceComesToNothing(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Rebalance(0)
		c.Sleep(30 * time.Second)
		c.Withdraw(0)
		c.Sleep(15 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable || n.Status.Notice != nil || n.Status.Drain != nil {
			t.Errorf("got %v, want it in service", n)
		}
		changed := c.Write(0, "cache", "late", 1000)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Kill(0)
		c.Verify(1, changed)
	})
}

// A node does not leave at once for an appointment that is days ahead: it copies blocks ahead, and leaves when the time comes.
func TestAppointmentIsLeftForWhenItIsTimeTo(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		r := c.Simulate(0, preemption.KindRetirement, 10*time.Minute, false)
		if r.Stance != "pre-copy" || r.Goes != "drain" || (r.Changes.AsDuration()-8*time.Minute).Abs() > time.Second {
			t.Errorf("got %v, want it copied ahead, and left for two minutes before", r)
		}
		c.Sleep(7 * time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" || n.Status.Drain.GetBlocksMoved() != int64(len(blocks)) {
			t.Errorf("3 minutes before: got %v, want it active and copied", n)
		}
		c.Sleep(90 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONED" {
			t.Errorf("90 seconds before: got %v, want it drained", n)
		}
		accounted(t, c, 0, blocks, 0)
		c.Sleep(2 * time.Minute) // it was a rehearsal: the machine stays
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("after the rehearsal: got %v, want it in service", n)
		}
	})
}

// A reboot keeps the disks: nothing is carried, and the node steps aside only shortly before.
func TestRebootKeepsTheData(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Simulate(0, preemption.KindReboot, 10*time.Minute, false)
		c.Sleep(7 * time.Minute)
		if n := c.Show(0); !n.Schedulable || n.Status.Notice != nil {
			t.Errorf("3 minutes before: got %v, want it in service", n)
		}
		c.Sleep(2 * time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" || n.Schedulable || n.Status.Notice.GetStance() != "watch" || n.Status.Drain != nil {
			t.Errorf("a minute before: got %v, want it aside, with its blocks", n)
		}
		c.Kill(0)
		c.Sleep(30 * time.Second)
		c.Reboot(0)
		c.Sleep(15 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("after the reboot: got %v, want it in service", n)
		}
	})
}

// A dry run says what a notice would bring, and brings nothing.
func TestDryRunChangesNothing(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		var bytes int64
		for _, b := range blocks {
			bytes += b.Bytes
		}
		r := c.Simulate(0, preemption.KindTerminate, 120*time.Second, true)
		if r.Incident != "" || r.Stance != "drain" || r.SendFor.AsDuration() != 115*time.Second || r.Blocks != int64(len(blocks)) || r.Bytes != bytes {
			t.Errorf("got %v, want a drain of %d blocks, sent for 115 s", r, len(blocks))
		}
		if r := c.Simulate(0, preemption.KindFreeze, 0, true); r.Goes != "ignore" || r.SendFor != nil {
			t.Errorf("got %v, want a freeze ignored", r)
		}
		c.Sleep(10 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable || len(c.Status(0).Notices) > 0 {
			t.Errorf("got %v, want it untouched", n)
		}
	})
}

// A dry run foresees the losses that the cap and the peers' room make certain, and no others.
func TestDryRunForesees(t *testing.T) {
	const perSecond = fillBlocks * fillSize / 50
	bubble(t, clustertest.Config{BytesPerSecond: perSecond}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		var room int64
		for _, p := range c.Status(0).Peers {
			room += p.RoomBytes
		}
		for _, in := range []time.Duration{30 * time.Second, 5 * time.Minute} {
			r := c.Simulate(0, preemption.KindTerminate, in, true)
			goes := min(r.Bytes, int64(perSecond*r.SendFor.AsDuration().Seconds()))
			if r.GetCapBytes() != goes || r.LostBytes != r.Bytes-goes || r.Peers != int64(len(c.Status(0).Peers)) || r.RoomBytes != room || room < r.Bytes {
				t.Errorf("in %s: got %v, want %d bytes to go and the others lost, for no want of room", in, r, goes)
			}
		}
		if r := c.Simulate(0, preemption.KindRetirement, time.Hour, true); r.CapBytes != nil || r.LostBytes != 0 {
			t.Errorf("in an hour: got %v, want nothing said of the cap: it copies ahead before", r)
		}
		c.Rebalance(0)
		c.Sleep(30 * time.Second)
		if r := c.Simulate(0, preemption.KindTerminate, 30*time.Second, true); r.CapBytes != nil || r.LostBytes != 0 {
			t.Errorf("got %v, want nothing said of a node that has copied ahead", r)
		}
	})
}

// If no peer is there, everything is lost.
func TestDryRunForeseesThatNobodyIsThere(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		for i := range c.Status(0).Peers {
			c.Kill(i + 1)
		}
		c.Sleep(time.Minute)
		if r := c.Simulate(0, preemption.KindTerminate, time.Hour, true); r.CapBytes != nil || r.Peers != 0 || r.LostBytes != r.Bytes || r.Bytes == 0 {
			t.Errorf("got %v, want all lost: nobody is there", r)
		}
	})
}

// The deadline keeps its distance through a kill -9, whatever is done to the clock meanwhile: the time server may set it
// far ahead, and the node still has its two minutes less what truly passed.
func TestDeadlineKeepsItsDistanceWhenTheClockIsSet(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, 120*time.Second, false)
		c.Sleep(10 * time.Second)
		c.Kill(0)
		c.SetClock(0, 20*time.Minute)
		c.Restart(0)
		c.Sleep(5 * time.Second)
		if left := c.Status(0).Status.Notice.GetRemaining().AsDuration(); (left - 105*time.Second).Abs() > 2*time.Second {
			t.Errorf("%s remain, want 105 s", left)
		}
		c.Sleep(80 * time.Second) // to the coordinator, for which the twenty minutes have passed, the time is long up
		accounted(t, c, 0, blocks, 0)
	})
}

// Advice that is taken back as another pass begins, while the coordinator hangs, leaves nothing of that pass in the status.
func TestAdviceIsTakenBackAsAPassBegins(t *testing.T) {
	for early := 5200 * time.Millisecond; early < 6*time.Second; early += 200 * time.Millisecond { // the pass asks the coordinator for a second
		t.Run(early.String(), func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				c.Simulate(0, preemption.KindRebalance, 0, false)
				c.Until("all that is there is copied", 50*time.Second, func() bool { n, _ := c.Moved(0); return n == fillBlocks })
				c.Sleep(55 * time.Second)
				c.Partition(0, clustertest.Coordinator)
				c.Sleep(early)
				c.Cancel(0, "")
				c.Sleep(3 * time.Second)
				if s := c.Status(0).Status; s.Notice != nil || s.Drain != nil {
					t.Errorf("without a notice, the node says that it carries: %v", s.Drain)
				}
			})
		})
	}
}
