package reading

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A node that the coordinator calls LOST may be cut off only from the coordinator, and have the only copy of a block. So if nobody else
// has the block, a reader asks a few LOST nodes. Most of them are dead, hundreds in a wave of preemptions. A node that does not answer
// soon is not asked again for a while: otherwise each of the many blocks that went with it would wait again before it is called lost.

const (
	unheardPatience = time.Second
	unheardPause    = 30 * time.Second
)

// unheard remembers which LOST nodes did not answer, and until when they are not asked.
type unheard struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// askUnheard returns a LOST node that has the block. If it returns none, that says nothing.
func (f *Fetcher) askUnheard(ctx context.Context, id inventory.BlockID, lost []Holder) []Holder {
	ask := f.unheard.due(lost)
	if len(ask) == 0 {
		return nil
	}
	found, _ := f.probeFor(ctx, id, ask, unheardPatience, f.unheard.silent)
	return found
}

func (u *unheard) due(nodes []Holder) (ask []Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range nodes {
		if time.Now().After(u.until[h.Node]) {
			ask = append(ask, h)
		}
	}
	return ask
}

func (u *unheard) silent(h Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.until, func(_ string, until time.Time) bool { return now.After(until) })
	if u.until == nil {
		u.until = map[string]time.Time{}
	}
	u.until[h.Node] = now.Add(unheardPause)
}
