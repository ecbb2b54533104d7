package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/blockmap"
)

// evMoved says that blocks landed on a node. A leader tells it of what it heard itself; where blocks are, Locate knows.
const evMoved = "BlocksMoved"

// movedPace is how often the same is told of the same two nodes at most.
const movedPace = time.Second

// moves gathers what landed until it is told.
type moves struct {
	some chan struct{} // holds one while there is something to tell

	mu    sync.Mutex                   // guards total
	total map[string]blockmap.Arrivals // by holder
}

func newMoves() *moves {
	return &moves{some: make(chan struct{}, 1), total: map[string]blockmap.Arrivals{}}
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
	select {
	case m.some <- struct{}{}:
	default:
	}
}

func (m *moves) take() map[string]blockmap.Arrivals {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.total
	m.total = map[string]blockmap.Arrivals{}
	return total
}

// tellMoves tells what landed until ctx ends: the first of it at once, and what follows in sums.
func (f *fleet) tellMoves(ctx context.Context) error {
	for {
		select {
		case <-f.moves.some:
		case <-ctx.Done():
			return nil
		}
		total := f.moves.take()
		for _, holder := range slices.Sorted(maps.Keys(total)) {
			for _, from := range slices.Sorted(maps.Keys(total[holder])) {
				n := total[holder][from]
				f.tellSoft(evMoved, holder, map[string]string{
					"from": cmp.Or(from, "several"), "blocks": strconv.FormatInt(n.Blocks, 10), "bytes": strconv.FormatInt(n.Bytes, 10),
				})
			}
		}
		select {
		case <-time.After(movedPace):
		case <-ctx.Done():
			return nil
		}
	}
}
