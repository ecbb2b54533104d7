package agent

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
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

// The clock was set back by an hour while the node drained, as by a time server at boot. The manifest has instants of before
// and after, and those who subtract them get how long the drain took, and how much time there was to spare.
func TestManifestWhoseClockWasSet(t *testing.T) {
	ended := time.Now()
	began := ended.Add(-5 * time.Second)
	*(*uint64)(unsafe.Pointer(&began)) += 3600 << 30 // the wall clock's seconds begin at bit 30: time.Time
	seen := preemption.Notice{Source: preemption.SourceManual, SeenAt: began, Deadline: began.Add(time.Minute), Stance: preemption.StanceDrain}
	c := &course{fleet: &fleet{}}
	s := c.summary(page{Incident: preemption.Open(seen), Work: work{Drained: &manifest.Summary{Started: byClockAt(ended, began), Finished: ended}}})
	for name, at := range map[string]time.Time{"noticed": s.NoticedAt.AsTime(), "started": s.StartedAt.AsTime(), "deadline": s.Deadline.AsTime().Add(-time.Minute)} {
		if got := s.FinishedAt.AsTime().Sub(at); got != 5*time.Second {
			t.Errorf("%s: got %s before the end, want 5s", name, got)
		}
	}
}
