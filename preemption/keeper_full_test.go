package preemption

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/durable"
)

// A notice on a full disk is not forgotten by a restart, as long as there is ballast.
func TestKeeperJoinsOnAFullDisk(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	cfg := KeeperConfig{Dir: dir, Ballast: durable.NewBallast(filepath.Join(dir, "ballast"))}
	k := openKeeper(t, cfg)
	if err := cfg.Ballast.Keep(32 << 10); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 2<<20), 0o600); !durable.Full(err) {
		t.Fatalf("fill the disk: %v", err)
	}
	if _, _, err := k.Join(Notice{Source: SourceManual, ID: "x", Kind: KindManual, SeenAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := k.Amend(func(w *string) { *w = "half" }); err != nil {
		t.Error(err)
	}
	again := openKeeper(t, cfg)
	if p, open := again.Open(); !open || p.Work != "half" {
		t.Errorf("got %+v (open: %v), want the incident", p, open)
	}
}

// An incident that ends on a full disk is over for a restart, too: else the node would leave for a notice that was withdrawn.
func TestKeeperClosesOnAFullDisk(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	k := openKeeper(t, KeeperConfig{Dir: dir})
	if _, _, err := k.Join(Notice{Source: SourceManual, ID: "x", Kind: KindManual, SeenAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 2<<20), 0o600); !durable.Full(err) {
		t.Fatalf("fill the disk: %v", err)
	}
	if err := k.Close("withdrawn"); err != nil {
		t.Error(err)
	}
	again := openKeeper(t, KeeperConfig{Dir: dir})
	if p, open := again.Open(); open {
		t.Errorf("got %+v, want no open incident", p)
	}
	if p, ok, err := again.Last(); !ok || err != nil || p.Closed != "withdrawn" {
		t.Errorf("got %+v, %v, %v, want the page of the incident that ended", p, ok, err)
	}
}
