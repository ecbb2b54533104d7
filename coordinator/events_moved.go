package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
)

// evMoved says that blocks landed on a node. It is a soft event, of what holders report to this leader; Locate says where blocks are.
const evMoved = "BlocksMoved"

// movedPace is the least time between two such events about the same two nodes.
const movedPace = time.Second

// moves adds up landed blocks until an event tells of them.
type moves struct {
	publisher *publisher

	some chan struct{} // holds one while total is not empty

	mu    sync.Mutex                   // guards total
	total map[string]blockmap.Arrivals // by holder
}

func newMoves(publisher *publisher) *moves {
	return &moves{publisher: publisher, some: make(chan struct{}, 1), total: map[string]blockmap.Arrivals{}}
}

func (m *moves) add(holder string, landed blockmap.Arrivals) {
	if len(landed) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.total[holder]
	for from, n := range landed {
		all.Add(from, n)
	}
	m.total[holder] = all
	await.Mark(m.some)
}

func (m *moves) take() map[string]blockmap.Arrivals {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.total
	m.total = map[string]blockmap.Arrivals{}
	return total
}

// run tells of landed blocks until ctx ends: of the first at once, and of those that follow in sums, each movedPace.
func (m *moves) run(ctx context.Context) error {
	for {
		select {
		case <-m.some:
		case <-ctx.Done():
			return nil
		}
		total := m.take()
		for _, holder := range slices.Sorted(maps.Keys(total)) {
			for _, from := range slices.Sorted(maps.Keys(total[holder])) {
				n := total[holder][from]
				m.publisher.tell(evMoved, holder, map[string]string{
					"from": cmp.Or(from, "several"), "blocks": strconv.FormatInt(n.Blocks, 10), "bytes": strconv.FormatInt(n.Bytes, 10),
				})
			}
		}
		if !await.Sleep(ctx, movedPace) {
			return nil
		}
	}
}
