package agent

import (
	"fmt"
	"testing"

	"github.com/lifeboat/lifeboat/migration"
)

// In a large fleet a long drain meets more peers than a coordinator lets a heartbeat name. The peers that took blocks are
// named.
func TestProgressNamesSomePeers(t *testing.T) {
	var p migration.Progress
	for i := range 2000 {
		e := migration.PeerProgress{Node: fmt.Sprintf("host-%04d", i)}
		if i%100 == 99 {
			e.Moved.Blocks = int64(i)
		}
		p.Peers = append(p.Peers, e)
	}
	named, took, last := apiProgress(p).Peers, 0, ""
	for _, e := range named {
		if e.Blocks > 0 {
			took++
		}
		if e.Node <= last {
			t.Errorf("%s comes after %s, want them by name", e.Node, last)
		}
		last = e.Node
	}
	if len(named) > 1024 || took != 20 {
		t.Errorf("%d peers are named, %d of the 20 that took something: want all of those, and at most 1024", len(named), took)
	}
}
