package migration

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// committer makes landed blocks durable, many at a time: sync the bytes, publish the names (an index after all else),
// sync the directories, commit the catalog, and only then send the receipts. One commit is under way while the next
// batch fills.
type committer struct {
	vault  *Vault
	queue  chan []*landed
	landed func([]Held) // told after each commit
}

const (
	// gather is how long a commit waits for company. A drain's last block is delayed by so much; in exchange a sync is
	// shared by all that arrived meanwhile (20 and 100 ms measured the same; see docs/benchmarks.md).
	gather = 20 * time.Millisecond
	// gatherBytes is company enough.
	gatherBytes = 32 << 20
)

func newCommitter(v *Vault, told func([]Held)) *committer {
	return &committer{vault: v, queue: make(chan []*landed, 64), landed: told}
}

// run commits until ctx ends and then once more what is queued. Nobody may submit after ctx has ended.
func (c *committer) run(ctx context.Context) error {
	for {
		var batch []*landed
		select {
		case b := <-c.queue:
			batch = b
		case <-ctx.Done():
			select {
			case b := <-c.queue:
				c.commit(b)
				continue
			default:
				return nil
			}
		}
		timer := time.NewTimer(gather)
	more:
		for bytes := sizeOf(batch); bytes < gatherBytes; {
			select {
			case b := <-c.queue:
				batch = append(batch, b...)
				bytes += sizeOf(b)
			case <-timer.C:
				break more
			case <-ctx.Done():
				break more
			}
		}
		timer.Stop()
		c.commit(batch)
	}
}

func sizeOf(batch []*landed) (n int64) {
	for _, l := range batch {
		n += l.bytes()
	}
	return n
}

// submit hands over blocks whose bytes have reached the kernel.
func (c *committer) submit(batch []*landed) {
	for _, l := range batch {
		if l.segment != nil {
			c.vault.use(l.segment)
		}
	}
	c.queue <- batch
}

func (c *committer) commit(batch []*landed) {
	held := c.durable(batch)
	if len(held) > 0 && c.landed != nil {
		c.landed(held)
	}
	for _, l := range batch {
		if l.segment != nil {
			c.vault.done(l.segment)
		}
		l.reply(verdictOn(l.transfer, l.fault))
	}
}

// durable returns what is new here, once it would survive a power cut. What could not be made so has its fault noted, and
// does not stand in the others' way.
func (c *committer) durable(batch []*landed) []Held {
	c.vault.catalog.contradictions(batch)
	segments := map[*segment][]*landed{}
	stores := map[*Store][]*landed{}
	for _, l := range batch {
		switch {
		case l.already:
		case l.segment != nil:
			segments[l.segment] = append(segments[l.segment], l)
		default:
			stores[l.store] = append(stores[l.store], l)
		}
	}
	var syncing sync.WaitGroup
	for s, blocks := range segments {
		syncing.Go(func() { failAll(blocks, c.vault.sync(s)) })
	}
	for s, blocks := range stores {
		syncing.Go(func() { s.publish(blocks, c.vault.catalog) })
	}
	syncing.Wait()

	ends := map[uint32]int64{}
	var records []record
	var held []Held
	for _, l := range batch {
		if l.already || l.fault != nil {
			continue
		}
		if l.segment != nil {
			ends[l.Segment] = max(ends[l.Segment], l.Offset+l.Length)
		}
		records = append(records, l.record)
		held = append(held, l.held())
	}
	if len(records) == 0 {
		return nil
	}
	if err := c.vault.catalog.commit(records, ends); err != nil {
		for s, blocks := range stores {
			failAll(blocks, err)
			s.unpublish(blocks)
		}
		for s, blocks := range segments {
			failAll(blocks, c.vault.spoil(s, err))
		}
		return nil
	}
	for s := range segments {
		c.vault.keep(s, ends[s.no])
	}
	return held
}

// failAll notes a fault that several blocks share.
func failAll(blocks []*landed, err error) {
	for _, l := range blocks {
		l.fault = cmp.Or(l.fault, err)
	}
}
