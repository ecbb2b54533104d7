package receiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// committer makes landed blocks durable, many at a time: sync the bytes, publish the names (an index after all else),
// sync the directories, commit the catalog, and only then send the receipts. One commit is under way while the next
// batch fills.
//
// Each set of directories has its own commits, so a sync that does not return holds up only the blocks that lie there.
// The committer answers for those blocks without waiting for the disk (refuse). If the sync returns after all, it does
// not keep them: a refused block must not turn up later beside the copy that another peer took instead.
type committer struct {
	vault *vault.Vault
	disks diskio.Disks
	keep  time.Duration      // how long a block stays; 0: until somebody removes it
	tell  func([]vault.Held) // told after each commit which blocks landed; it must not keep the slice

	mu      sync.Mutex
	shelves map[string]*shelf
	synced  []*landed // waiting for the catalog
	ended   bool

	records []catalog.Change // with held, space that each commit uses again; guarded by the catalog's Writing
	held    []vault.Held

	working sync.WaitGroup
	quit    chan struct{} // closed by end
	waste   chan struct{} // gets one when much of the segments is of no use and can be given back
}

// shelf has the blocks that are committed together: they lie in the same directories.
type shelf struct {
	dirs  []string
	queue []*landed
	bytes int64         // of queue
	full  chan struct{} // gets one when the batch is large enough to be committed at once

	running bool
	busy    []*landed // being committed
	since   time.Time
	at      diskio.Work // which of several directories a commit is at, while files get their names
}

const (
	// gather is how long a commit waits for more blocks. It delays a drain's last block by so much; in exchange all
	// blocks that arrive meanwhile share one sync (20 and 100 ms measured the same; see docs/design/measured.md).
	gather = 20 * time.Millisecond
	// gatherBytes is the batch that is committed without waiting longer.
	gatherBytes = 32 << 20
	// wasteBytes is how much useless space segments may collect before it is given back. Blocks that come again and again, or are refused
	// once their bytes are there, leave such space, and no quota counts it.
	wasteBytes = 64 << 20
)

func newCommitter(v *vault.Vault, disks diskio.Disks, told func([]vault.Held)) *committer {
	return &committer{vault: v, disks: diskio.OrWell(disks), tell: told, shelves: map[string]*shelf{}, quit: make(chan struct{}), waste: make(chan struct{}, 1)}
}

// submit hands over blocks whose bytes have reached the kernel. It does not wait.
func (c *committer) submit(batch []*landed) {
	for s, n := range segmentsOf(batch) {
		c.vault.Use(s, n)
	}
	c.mu.Lock()
	if c.ended { // a stream that was left behind
		c.mu.Unlock()
		failAll(batch, errStopping)
		c.answer(batch)
		return
	}
	defer c.mu.Unlock()
	for _, l := range batch {
		key := strings.Join(l.dirs, "\x00")
		s := c.shelves[key]
		if s == nil {
			s = &shelf{dirs: l.dirs, full: make(chan struct{}, 1)}
			c.shelves[key] = s
		}
		s.queue = append(s.queue, l)
		if s.bytes += l.Bytes(); s.bytes >= gatherBytes {
			await.Mark(s.full)
		}
		if !s.running {
			s.running = true
			c.working.Go(func() { c.work(s) }) // it ends when its queue is empty; while its disk hangs it does not
		}
	}
}

// work commits a shelf's batches, and ends when its queue is empty.
func (c *committer) work(s *shelf) {
	for {
		select {
		case <-time.After(gather):
		case <-s.full:
		case <-c.quit:
		}
		c.mu.Lock()
		batch := s.queue
		s.busy, s.queue, s.bytes, s.since = batch, nil, 0, time.Now()
		s.running = len(batch) > 0
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		c.commit(batch, &s.at)
		c.mu.Lock()
		s.busy = nil
		c.mu.Unlock()
	}
}

// end commits what is queued, and waits for that while ctx lasts.
func (c *committer) end(ctx context.Context) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	close(c.quit)
	select {
	case <-await.Beside(c.working.Wait):
	case <-ctx.Done():
	}
}

func (c *committer) commit(batch []*landed, at *diskio.Work) {
	intents := c.durable(batch, at)
	c.acknowledge(batch)
	for _, l := range batch {
		if l.segment != nil && (l.fault != nil || l.already) && !l.stays {
			l.segment.Void(l.Offset)
		}
	}
	c.answer(batch)
	for _, in := range intents { // now that no sender waits for their disk
		in.remove(at)
	}
}

func (c *committer) answer(batch []*landed) {
	for s, n := range segmentsOf(batch) {
		c.vault.Done(s, n)
	}
	for in, blocks := range byStream(batch) {
		in.reply(blocks)
	}
}

// byStream groups blocks by the stream that owes their verdicts.
func byStream(batch []*landed) map[*inbound][]*landed {
	of := map[*inbound][]*landed{}
	for _, l := range batch {
		of[l.in] = append(of[l.in], l)
	}
	return of
}

// segmentsOf counts the blocks of a batch in each segment.
func segmentsOf(batch []*landed) map[*vault.Segment]int {
	of := map[*vault.Segment]int{}
	for _, l := range batch {
		if l.segment != nil {
			of[l.segment]++
		}
	}
	return of
}

// stuck returns the directories whose disks hang under a commit.
func (c *committer) stuck(now time.Time) (dirs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		if s.late(now) {
			dirs = append(dirs, s.holdUp()...)
		}
	}
	return dirs
}

// refuse answers for the blocks of disks that take no blocks any more, or that hang.
func (c *committer) refuse(now time.Time) {
	type refusal struct {
		blocks []*landed
		why    error
	}
	var refused []refusal
	c.mu.Lock()
	for _, s := range c.shelves {
		if why := c.trouble(s, now); why != nil {
			refused = append(refused, refusal{slices.Concat(s.busy, s.queue), why})
		}
	}
	c.mu.Unlock()
	for _, r := range refused {
		c.disown(r.blocks, r.why)
	}
}

// disown answers for blocks without waiting for their disk. Should the disk take them after all, they are not kept.
func (c *committer) disown(blocks []*landed, why error) {
	c.mu.Lock()
	for _, l := range blocks {
		l.disowned = cmp.Or(l.disowned, why)
	}
	c.mu.Unlock()
	for in, blocks := range byStream(blocks) {
		in.answer(blocks, func(*landed) error { return why })
	}
}

// trouble returns why a shelf's blocks should go to another peer; nil: they need not.
func (c *committer) trouble(s *shelf, now time.Time) error {
	for _, dir := range s.dirs {
		if len(s.busy)+len(s.queue) > 0 && !c.disks.Keeps(dir) {
			return &unwellError{dir}
		}
	}
	if s.late(now) {
		return diskio.Silence(strings.Join(s.holdUp(), " or "))
	}
	return nil
}

// holdUp returns the directory that a commit waits for, or if that is unknown all that it may wait for.
func (s *shelf) holdUp() []string {
	if dir, _, working := s.at.On(time.Now()); working {
		return []string{dir}
	}
	return s.dirs
}

func (s *shelf) late(now time.Time) bool {
	return len(s.busy) > 0 && now.Sub(s.since) >= diskio.Overdue
}

var errStopping = errors.New("the agent is stopping")

// unwellError says that a disk takes no blocks any more.
type unwellError struct{ dir string }

func (e *unwellError) Error() string { return "disk " + e.dir + " takes no blocks any more" }

// durable returns once the batch's new blocks would survive a power cut. A block that could not be made durable has its
// fault noted, and does not hold up the others. durable tells at which directory it works: one of a store's, or the
// catalog's. The intents that it returns are of no use any more.
func (c *committer) durable(batch []*landed, at *diskio.Work) (intents []*intent) {
	at.Begin(&c.vault.Dir)
	contradictions(c.vault.Catalog, inPlace(batch)) // before files get names; blocks for the vault are compared in record
	at.End()
	segments := map[*vault.Segment][]*landed{}
	stores := map[*inventory.Store][]*landed{}
	for _, l := range batch {
		switch {
		case l.already || l.fault != nil:
		case l.segment != nil:
			segments[l.segment] = append(segments[l.segment], l)
		case !c.vault.ClaimNaming(inventory.BlockID(l.ID)):
			l.fault = errRemoved
		default:
			defer c.vault.Unclaim(inventory.BlockID(l.ID))
			stores[l.store] = append(stores[l.store], l)
		}
	}
	var syncing sync.WaitGroup
	for s, blocks := range segments {
		syncing.Go(func() { failAll(blocks, c.vault.Sync(s, c.disks)) })
	}
	for s, blocks := range stores {
		in := intend(s, blocks, at)
		if in != nil {
			intents = append(intents, in)
		}
		syncing.Go(func() { publish(s, blocks, in, c.vault.Catalog, c.disks, at) })
	}
	syncing.Wait()
	at.Begin(&c.vault.Dir)
	c.record(batch)
	at.End()
	return intents
}

// record writes the synced blocks into the catalog, together with those that other commits have synced meanwhile.
func (c *committer) record(batch []*landed) {
	c.mu.Lock()
	c.synced = append(c.synced, batch...)
	c.mu.Unlock()
	c.vault.Catalog.Writing.Lock() // also so that tell is called for one batch at a time
	defer c.vault.Catalog.Writing.Unlock()
	c.mu.Lock()
	all := c.synced // empty: another commit has recorded ours
	c.synced = nil
	for _, l := range all {
		l.fault = cmp.Or(l.fault, l.disowned)
	}
	c.mu.Unlock()
	all = inOrder(all) // the order of ids, as in the catalog
	now := time.Now()
	contradictions(c.vault.Catalog, all) // compared again: other disks' commits may have come between
	ends := map[uint32]catalog.End{}
	segments := map[*vault.Segment]bool{}
	records, held := slices.Grow(c.records[:0], len(all)), slices.Grow(c.held[:0], len(all))
	defer func() { c.records, c.held = emptied(records), emptied(held) }()
	var spare []catalog.Record // the space of blocks that lie in a segment and are not kept
	for _, l := range all {
		l.Landed = now
		if l.fault == nil && !l.already {
			c.repeats(l)
			l.fault = cmp.Or(l.fault, l.overtaken(c.vault.Catalog))
		}
		if l.fault == nil && l.already && !l.outdone {
			records = c.renew(l, records)
		}
		if l.fault != nil || l.already {
			l.withdraw()
			if s := l.segment; s != nil && c.vault.Fault(s) == nil {
				spare = append(spare, l.Record)
				if _, noted := ends[s.No]; !noted { // without an end in the catalog a later segment gets its number
					ends[s.No] = c.vault.EndOf(s, 0)
				}
			}
			continue
		}
		if s := l.segment; s != nil {
			ends[s.No] = c.vault.EndOf(s, max(ends[s.No].At, l.Offset+l.Length))
			segments[s] = true
		}
		records = append(records, l.change())
		held = append(held, vault.HeldOf(l.Record))
	}
	if len(records)+len(spare) == 0 {
		return
	}
	written, err := c.vault.Catalog.Commit(records, ends, spare)
	if err != nil {
		if diskio.IsFault(err) {
			c.disks.Fault(c.vault.Dir, err)
		}
		for s := range segments {
			c.vault.Spoil(s, err)
		}
		known := map[inventory.BlockID]bool{}
		for _, r := range records[:written] {
			known[inventory.BlockID(r.ID)] = true
		}
		inForce := c.vault.Catalog.InForce(records[written:])
		for _, l := range all {
			if known[inventory.BlockID(l.ID)] {
				continue
			}
			l.fault = cmp.Or(l.fault, err)
			if l.stays = inForce[inventory.BlockID(l.ID)]; !l.stays {
				l.withdraw()
			}
		}
		held = slices.DeleteFunc(held, func(h vault.Held) bool { return !known[h.ID] && !inForce[h.ID] })
		if records = records[:written]; len(known)+len(inForce) == 0 {
			return
		}
	}
	for s := range segments {
		c.vault.Keep(s, ends[s.No].At)
	}
	if c.vault.Catalog.Wasted() >= wasteBytes {
		await.Mark(c.waste)
	}
	c.vault.Unread.Note(records)
	if len(held) > 0 {
		c.tell(held)
	}
}

// emptied clears a list for the next commit to use again, unless its space is large.
func emptied[T any](list []T) []T {
	if cap(list) > mostListed {
		return nil
	}
	clear(list)
	return list[:0]
}

// mostListed is more entries than most commits of small blocks have: a third of a megabyte.
const mostListed = 4 << 10

// withdraw removes the files of a block that is not kept.
func (l *landed) withdraw() {
	if l.store != nil {
		takeBack(l.store, l, new(diskio.Work))
	}
}

// repeats notes that a block in place is here already, by a commit on another disk that came first.
func (c *committer) repeats(l *landed) {
	if l.store == nil {
		return
	}
	old, err := c.vault.Catalog.Get(inventory.BlockID(l.ID))
	if err == nil && len(old.Placed) > 0 && old.Sum == l.Sum && !slices.EqualFunc(old.Placed, l.Placed, catalog.Placed.SameAs) {
		l.already = true
	}
}

// renewAfter is the age below which a record is not renewed when its block comes again. To keep a block for an hour more
// is not worth a write, unless an hour is a good part of Keep.
const renewAfter = time.Hour

// renew makes sure that a block which was found here is here still, and has it kept as long as if it had landed now.
func (c *committer) renew(l *landed, records []catalog.Change) []catalog.Change {
	if n := len(records); n > 0 && records[n-1].ID == l.ID {
		return records // another version takes its place in this commit, and a renewed record would take that one's
	}
	v := c.vault
	now, err := v.Catalog.Get(inventory.BlockID(l.ID))
	if err != nil || now.Segment == 0 && v.Removing(inventory.BlockID(l.ID)) {
		l.fault = errRemoved
		return records
	}
	after := renewAfter
	if c.keep > 0 {
		after = min(after, c.keep/10)
	}
	if time.Since(now.Landed) < after {
		return records
	}
	now.Landed = time.Now()
	return append(records, catalog.Change{Record: &now})
}
