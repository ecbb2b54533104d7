package agent

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
)

// Reload applies the settings that may change while the agent runs, and names the others that differ.
func TestReload(t *testing.T) {
	old := Default()
	old.Coordinators = []string{"10.0.0.1:7411"}
	a := &Agent{cfg: old, file: old}
	a.cfg.Node.Name = "host-a" // it is from the certificate, so the file has not changed
	stub := &stubDisks{}
	a.disks.monitor = stub
	a.limits.Store(limitsOf(old))
	var err error
	if a.workloads.attention, err = openAttention(filepath.Join(t.TempDir(), "workloads.json"), "", new(durable.Beside)); err != nil {
		t.Fatal(err)
	}

	if a.evacuations, err = openEvacuations(t.TempDir(), new(durable.Beside)); err != nil {
		t.Fatal(err)
	}

	now := old
	now.Drain.Timeout, now.Receive.ReserveBytes = 2*time.Hour, 7
	now.Disks.Evacuate = false
	now.Policy = preemption.Policy{preemption.KindRebalance: preemption.StanceDrain}
	if left := a.Reload(now); len(left) != 0 {
		t.Errorf("got %v left alone, want all taken over", left)
	}
	if got := a.limits.Load(); got.Drain.Timeout != 2*time.Hour || stub.reserve != 7 || got.Evacuate || a.limits.policy().Stance(preemption.KindRebalance) != preemption.StanceDrain {
		t.Errorf("got %+v, and a reserve of %d bytes", got, stub.reserve)
	}
	now.Coordinators, now.Receive.MaxStreams, now.Listen.HTTP = []string{"10.0.0.2:7411"}, 3, "127.0.0.1:1"
	now.Disks.Every, now.Receive.Paths, now.Receive.ScrubBytesPerSecond = time.Minute, []string{"/mnt/spare"}, 1<<20
	if left, want := a.Reload(now), []string{"coordinators", "disks", "listen", "receive.max_streams", "receive.paths", "receive.scrub_bytes_per_second"}; !slices.Equal(left, want) {
		t.Errorf("got %v left alone, want %v", left, want)
	}
}
