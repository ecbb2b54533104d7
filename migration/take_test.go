package migration

import (
	"fmt"
	"math"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// takeOne takes the first block that is due at that peer and needs at most room bytes. ok is false if there is none now; wait is
// then how long until a waiting block is due (0: no block waits for a time).
func takeOne(p *plan.Plan, peer string, room int64) (e plan.Entry, ok bool, wait time.Duration, err error) {
	return takeInTime(p, peer, room, math.MaxInt64)
}

// takeInTime takes no block larger than affordable: it would be there too late.
func takeInTime(p *plan.Plan, peer string, room, affordable int64) (e plan.Entry, ok bool, wait time.Duration, err error) {
	batch, wait, err := p.Take(nil, 1, math.MaxInt64, peer, plan.RoomOf(room), affordable, nil)
	if len(batch) == 0 {
		return e, false, wait, err
	}
	return batch[0], true, 0, nil
}

// tiny is a block of nearly a KiB.
func tiny(i int) inventory.Block {
	name := fmt.Sprintf("f-%04d", i)
	return inventory.Block{ID: inventory.BlockID("cache/-/" + name), Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []inventory.Member{{Name: name, Bytes: 1000, Path: name}}}
}
