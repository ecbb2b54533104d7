package migration

import (
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// A node leaves whose store is not mounted. Blocks there are lost by name, and no others.
func TestBlockOnADiskThatIsNotMountedIsLost(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": receiver.PackedBytes + 1} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", size))))
			n.unpack()
			n.Unmounted(t)
			wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/y", contentOf("y", size)))) // elsewhere
			n.unpack()
			_, entries := n.drain(t, within(t, 20*time.Second), newNode(t, "c"))
			if moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost); len(moved) != 1 || moved["cache/-/y"].ID == "" || !strings.Contains(lost["cache/-/x"].Reason, "not mounted") {
				t.Errorf("got %v", entries)
			}
		})
	}
}
