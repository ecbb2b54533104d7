package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/disks/sickfs"
)

// A disk that hangs under what was done about a workload holds up who writes it down, and nobody who only asks: the heartbeat
// asks.
func TestAttentionIsKnownWhileItsDiskHangs(t *testing.T) {
	dir, disk := t.TempDir(), new(sickfs.FS)
	disk.Mount(t, dir)
	attention, err := openAttention(filepath.Join(dir, "workloads.json"), "boot")
	if err != nil {
		t.Fatal(err)
	}
	disk.Fall(sickfs.Hangs)
	changing, noted, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(noted)
		attention.amend("engine", func(d *attended) { d.Stopping = true; close(changing) })
	}()
	<-changing
	go func() {
		defer close(asked)
		attention.of("engine")
		attention.changes()
	}()
	select {
	case <-asked:
	case <-time.After(10 * time.Second):
		t.Error("who asks waits for the disk")
	}
	disk.Heal()
	<-noted
	if !attention.of("engine").Stopping {
		t.Error("what was done is not known")
	}
}
