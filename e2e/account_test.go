package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The coordinator is dead during a whole drain, then the drained machine goes, and the coordinator comes back with an empty
// disk. The fleet still knows what became of each block: the node left its account with a peer.
func TestAccountOutlivesNodeAndCoordinator(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.fill(30, 2<<20)
	f.up()
	f.coordinator.kill()
	a.verb("decommission", "--self", "--timeout", "60s", "--wait").exits(0)
	f.until(func() error {
		if got := b.status().Held; got != int64(len(a.blocks)+1) {
			return fmt.Errorf("host-b holds %d blocks, want %d and the account", got, len(a.blocks))
		}
		return nil
	})
	a.kill()
	if err := os.RemoveAll(filepath.Join(f.dir, "coordinator")); err != nil {
		t.Fatal(err)
	}
	f.coordinator.start()
	f.until(b.is("ACTIVE"))
	var said said
	f.until(func() error {
		if said = f.verb("manifest", "host-a", "-o", "json"); said.code != 0 {
			return fmt.Errorf("manifest: exit code %d: %s", said.code, said.stderr)
		}
		return nil
	})
	a.allMoved(decode[manifestView](said))
	f.verb("manifest", "host-a").exits(0).tells("30 (2.0 MiB) of 30 blocks moved")
	f.verb("manifest", "host-c").exits(3)
}
