package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// evMoved says that blocks landed on a node. A leader tells it of what it heard itself; where blocks are, Locate knows.
const evMoved = "BlocksMoved"

const (
	// movedPace is how often the same is told of the same two nodes at most.
	movedPace = time.Second

	// maxSources bounds from how many nodes one node is said to have got blocks within that time. The rest are counted
	// together, from nobody in particular: an honest node has few.
	maxSources = 256
)

// arrival counts blocks that landed.
type arrival struct{ blocks, bytes int64 }

// arrivals are by the node that blocks came from.
type arrivals map[string]arrival

func (a *arrivals) count(from string, bytes int64) { a.add(from, arrival{1, bytes}) }

func (a *arrivals) add(from string, n arrival) {
	if *a == nil {
		*a = arrivals{}
	}
	if _, known := (*a)[from]; !known && len(*a) >= maxSources {
		from = ""
	}
	was := (*a)[from]
	(*a)[from] = arrival{was.blocks + n.blocks, was.bytes + n.bytes}
}

// moves gathers what landed until it is told.
type moves struct {
	some chan struct{} // holds one while there is something to tell

	mu    sync.Mutex          // guards total
	total map[string]arrivals // by holder
}

func newMoves() *moves { return &moves{some: make(chan struct{}, 1), total: map[string]arrivals{}} }

func (m *moves) add(holder string, landed arrivals) {
	if len(landed) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.total[holder]
	for from, n := range landed {
		all.add(from, n)
	}
	m.total[holder] = all
	select {
	case m.some <- struct{}{}:
	default:
	}
}

func (m *moves) take() map[string]arrivals {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.total
	m.total = map[string]arrivals{}
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
					"from": cmp.Or(from, "several"), "blocks": strconv.FormatInt(n.blocks, 10), "bytes": strconv.FormatInt(n.bytes, 10),
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
