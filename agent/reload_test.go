package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
)

// Reload applies the settings that may change while the agent runs, and names the others that differ.
func TestReload(t *testing.T) {
	old := Default()
	old.Coordinators = []string{"10.0.0.1:7411"}
	a := &Agent{cfg: old, file: old, log: slog.New(slog.DiscardHandler), deps: Deps{Identity: certs.Dev(old.identity())}}
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

// A reload takes up a certificate that was put in the place of the one in use, and keeps the one in use if it cannot.
func TestReloadTakesTheCertificate(t *testing.T) {
	dir := t.TempDir()
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	issue := func() (cert, key string) {
		cert, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleNode, Name: "host-a"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := issue()
	id, err := certs.Load(filepath.Join(dir, "ca.pem"), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{cfg: Default(), log: slog.New(slog.DiscardHandler), deps: Deps{Identity: id}}
	a.disks.monitor = &stubDisks{}
	if a.workloads.attention, err = openAttention(filepath.Join(dir, "workloads.json"), "", new(durable.Beside)); err != nil {
		t.Fatal(err)
	}
	if a.evacuations, err = openEvacuations(dir, new(durable.Beside)); err != nil {
		t.Fatal(err)
	}
	was := id.Leaf()
	issue()
	a.Reload(Default())
	if id.Leaf().Equal(was) {
		t.Error("the certificate that was put in its place is not shown")
	}
	was = id.Leaf()
	if err := os.WriteFile(cert, []byte("half a certi"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Reload(Default())
	if !id.Leaf().Equal(was) {
		t.Error("the certificate in use is gone")
	}
}
