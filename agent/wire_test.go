package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
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

// A coordinator refuses a heartbeat with a negative figure: whatever a drain has counted wrongly, the node is not taken for dead
// over it.
func TestProgressHasNoNegativeFigure(t *testing.T) {
	wrong := inventory.Count{Blocks: -1, Bytes: -1}
	p := migration.Progress{Found: wrong, Moved: wrong, Lost: wrong, Skipped: wrong, BytesPerSecond: -1, Peers: []migration.PeerProgress{{Node: "b", Moved: wrong}}}
	for what, d := range map[string]*api.DrainProgress{"progress": apiProgress(p), "summary": apiSummary(&manifest.Summary{Moved: wrong, Lost: wrong, Skipped: wrong})} {
		figures := []int64{d.BlocksTotal, d.BlocksMoved, d.BlocksLost, d.BlocksSkipped, d.BytesTotal, d.BytesMoved, d.BytesPerSecond}
		for _, e := range d.Peers {
			figures = append(figures, e.Blocks, e.Bytes)
		}
		if least := slices.Min(figures); least < 0 {
			t.Errorf("%s: got %d among %v, want no negative figure", what, least, d)
		}
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
