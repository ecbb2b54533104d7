package migration

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// A drain does not send again what its earlier runs moved: its account claims that some node holds it. But what was copied ahead of
// a notice may have to last for weeks, in which holders die, or give up what they have kept for long enough. So a drain asks who
// holds such blocks as it meets them, and carries again what nobody holds.

// Lapsed says which of some blocks nobody holds any more, by their places in blocks, and why the first of them is gone. The blocks
// were moved at least age ago. While nobody can tell, none is missing.
type Lapsed func(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error)

// claims are what the account says that peers have and they may not have any more. They are blocks to ask about.
type claims struct {
	cargo
	homes *homes
	dir   string // DrainConfig.Dir
	// As in DrainConfig.
	lapsed Lapsed
	broken []Broken

	questions
}

func newClaims(cfg DrainConfig, c cargo, homes *homes) *claims {
	return &claims{cargo: c, homes: homes, dir: cfg.Dir, lapsed: cfg.Lapsed, broken: cfg.Again, questions: newQuestions(cfg.Dir, "claims")}
}

// check asks about blocks that earlier runs moved, as this one meets them, until no more come. It plans anew those that nobody
// holds.
func (c *claims) check(ctx context.Context) {
	defer c.close()
	if c.lapsed == nil || c.account.history.recalled == 0 {
		return
	}
	var again inventory.Count
	var first inventory.BlockID
	var because string
	for batch := range c.batches(ctx) {
		missing, why, err := c.lapsed(ctx, c.account.age, batch)
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("nobody can say whether blocks that were carried before are still held: they are taken to be", "err", err)
			}
			break
		}
		for _, at := range missing {
			if first == "" {
				first, because = batch[at].ID, why
				c.endings.await(ctx)
			}
			again = again.Plus(c.planAnew(ctx, batch[at], -1))
		}
		c.homes.flush() // no look may follow that would do it
	}
	if again.Blocks > 0 {
		c.log.Warn("blocks that were carried before are carried again: no node has them any more", "blocks", again.Blocks, "bytes", again.Bytes, "block", first, "why", cmp.Or(because, "no node has reported it"))
	}
}

// doubt is which peers' blocks a drain asks about, whether anybody still holds them.
type doubt struct {
	others bool     // the blocks of all peers but the named ones; else of these
	named  []string // peers
}

func (cfg *DrainConfig) doubt() doubt {
	return doubt{cfg.Lapsed != nil && len(cfg.Absent) == 0, cfg.Absent}
}

func (d doubt) asks(peer string) bool {
	return !strings.HasPrefix(peer, lastresort.PeerPrefix) && slices.Contains(d.named, peer) != d.others
}

// planAnew plans a block again that a line of the account claims was moved. The line begins at begin; -1: it is an earlier run's, which the
// history knows. A block that is in the plan already is not planned twice, nor one of which a newer version is in the plan, or was moved
// since: that version's line is the last.
func (c *claims) planAnew(ctx context.Context, b inventory.Block, begin int64) (planned inventory.Count) {
	line, anew := c.account.history.lapse(b)
	if !anew {
		return inventory.Count{}
	}
	if begin < 0 {
		begin = line
	}
	c.account.ledger.TakeBack(begin, manifest.Entry{ID: string(b.ID), Bytes: b.Bytes(), Version: string(manifest.AppendVersion(b, nil))})
	if why := c.endings.isOver(b); why != "" {
		c.account.skip(&b, why)
	} else if c.homes.enter(ctx, b) != nil {
		c.account.lose(plan.Entry{Block: b}, unplanned)
	}
	return inventory.Count{Blocks: 1, Bytes: b.Bytes()}
}

// Mark is a moment of a running drain, by its account of what moved until then.
type Mark struct {
	At  time.Time
	end int64
}

// Mark returns the present moment. A disk that hangs holds it up until ctx ends.
func (d *Drain) Mark(ctx context.Context) (m Mark, err error) {
	return diskio.UnlessHung(ctx, func() (Mark, error) {
		if err := d.account.ledger.Written(); err != nil {
			return Mark{}, err
		}
		m := Mark{At: time.Now()}
		info, err := os.Stat(manifest.Path(d.cfg.Dir, manifest.Moved))
		if err == nil {
			m.end = info.Size()
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil // nothing has moved
		}
		return m, err
	})
}

// CarryLapsed makes a running drain plan anew what these peers took before that moment, in this run or before, and nobody
// holds any more. It reports false when that comes too late for the drain, or a disk does not answer that some of it may lie on. A disk
// that hangs holds it up until ctx ends.
func (d *Drain) CarryLapsed(ctx context.Context, took []string, before Mark, lapsed Lapsed) (heard bool, err error) {
	return diskio.UnlessHung(ctx, func() (bool, error) { return d.claims.carryLapsed(ctx, took, before, lapsed) })
}

func (c *claims) carryLapsed(ctx context.Context, took []string, before Mark, lapsed Lapsed) (bool, error) {
	age := time.Since(before.At)
	var batch []inventory.Block
	var begins []int64 // of their lines
	var again inventory.Count
	var first inventory.BlockID
	var because string
	var silent error // a disk does not answer that such a block may lie on
	ask := func() error {
		missing, why, err := lapsed(ctx, age, batch)
		for _, at := range missing {
			if c.plan.Sealed() || err != nil {
				break
			}
			if first == "" {
				first, because = batch[at].ID, why
			}
			again = again.Plus(c.planAnew(ctx, batch[at], begins[at]))
		}
		c.homes.flush()
		batch, begins = batch[:0], begins[:0]
		return err
	}
	if err := c.account.ledger.Written(); err != nil {
		return false, err
	}
	for line, err := range manifest.Lines(manifest.Path(c.dir, manifest.Moved)) {
		if err != nil {
			return false, err
		}
		if line.Begin >= before.end {
			break
		}
		e := line.Entry
		if e.Outcome != manifest.Moved || !slices.Contains(took, e.Peer) {
			continue
		}
		b, gone := c.source.findAgain(inventory.BlockID(e.ID))
		if diskio.IsSilent(gone) {
			silent = gone
		}
		if v, known := e.OfVersion(); gone != nil || !known || manifest.VersionOf(b) != v {
			continue // its engine deleted it, or what it is now is in the plan by itself
		}
		if batch, begins = append(batch, b), append(begins, line.Begin); len(batch) < reading.MostAsked {
			continue
		}
		if err := ask(); err != nil {
			return false, err
		}
	}
	err := cmp.Or(ask(), silent)
	if again.Blocks > 0 {
		c.log.Warn("blocks that peers took are carried again: no node has them any more", "peers", took, "blocks", again.Blocks, "bytes", again.Bytes, "block", first, "why", cmp.Or(because, "no node has reported it"))
	}
	return err == nil && !c.plan.Sealed(), err
}

// AnyLapsed reports whether some block is held by nobody any more that the drain of cfg, which is over, moved at least age ago, and
// that is still here. Of the blocks that an absent peer took it asks about a thousand, here and there. That is enough: a peer that
// died had all of them; a peer that left has told which ones it lost, and handed on the others to a few nodes. An error says that this is not
// known: nobody tells who holds them, or a disk here does not answer. A disk that hangs holds it up until ctx ends.
func AnyLapsed(ctx context.Context, cfg DrainConfig, age time.Duration) (some bool, err error) {
	return diskio.UnlessHung(ctx, func() (bool, error) { return anyLapsed(ctx, cfg, age) })
}

func anyLapsed(ctx context.Context, cfg DrainConfig, age time.Duration) (bool, error) {
	source := newSource(cfg)
	var batch []inventory.Block
	about := cfg.doubt()
	asks := about.asks
	if len(cfg.Absent) > 0 {
		few, err := fewOfEach(cfg.Dir, reading.MostAsked)
		if err != nil {
			return false, err
		}
		asks = func(peer string) bool { return about.asks(peer) && few(peer) }
	}
	var silent error // a disk does not answer that such a block may lie on
	ask := func() (some bool, err error) {
		missing, _, err := cfg.Lapsed(ctx, age, batch)
		if err != nil {
			return false, err
		}
		for _, at := range missing {
			switch _, gone := source.findAgain(batch[at].ID); {
			case gone == nil:
				return true, nil
			case diskio.IsSilent(gone):
				silent = gone
			}
		}
		batch = batch[:0]
		return false, nil
	}
	for e, err := range manifest.Read(manifest.Path(cfg.Dir, manifest.Moved)) {
		if err != nil {
			return false, err
		}
		if e.Outcome != manifest.Moved || !asks(e.Peer) {
			continue
		}
		if batch = append(batch, inventory.Block{ID: inventory.BlockID(e.ID), Members: []inventory.Member{{Bytes: e.Bytes}}}); len(batch) < reading.MostAsked {
			continue
		}
		if some, err := ask(); some || err != nil {
			return some, err
		}
	}
	if some, err := ask(); some || err != nil {
		return some, err
	}
	return false, silent
}

// fewOfEach returns a func that picks at most so many lines of each peer in the account in dir. It is called for each line, in order, and
// picks one of each stretch by chance, for blocks whose lines lie side by side were handed on together.
func fewOfEach(dir string, most int) (picks func(peer string) bool, err error) {
	lines := map[string]int{}
	for e, err := range manifest.Read(manifest.Path(dir, manifest.Moved)) {
		if err != nil {
			return nil, err
		}
		if e.Outcome == manifest.Moved {
			lines[e.Peer]++
		}
	}
	at, next := map[string]int{}, map[string]int{}
	return func(peer string) bool {
		stretch := max(1, (lines[peer]+most-1)/most)
		i := at[peer]
		if at[peer]++; i%stretch == 0 {
			next[peer] = i + rand.IntN(stretch)
		}
		return i == next[peer]
	}, nil
}

// Takers are the peers that have taken blocks in this run of the drain, or in earlier ones.
func (d *Drain) Takers() (nodes []string) {
	takers := maps.Clone(d.account.history.took)
	for _, p := range d.peers.progress() {
		takers[p.Node] = takers[p.Node].Plus(p.Moved)
	}
	for node, took := range takers {
		if took.Blocks > 0 && !strings.HasPrefix(node, lastresort.PeerPrefix) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Takers are the nodes that have taken blocks by the account in dir, in order.
func Takers(dir string) (nodes []string, err error) {
	met := map[string]bool{}
	for e, err := range manifest.Read(manifest.Path(dir, manifest.Moved)) {
		if err != nil {
			return nil, err
		}
		if e.Outcome == manifest.Moved && !strings.HasPrefix(e.Peer, lastresort.PeerPrefix) {
			met[e.Peer] = true
		}
	}
	return slices.Sorted(maps.Keys(met)), nil
}

// Carried is what was moved by the account in dir.
func Carried(dir string) (moved inventory.Count, err error) {
	for e, err := range manifest.Read(manifest.Path(dir, manifest.Moved)) {
		if err != nil {
			return moved, err
		}
		if _, known := e.OfVersion(); e.Outcome == manifest.Voided {
			moved = moved.Plus(inventory.Count{Blocks: -1, Bytes: -e.Bytes})
		} else if known {
			moved = moved.Plus(inventory.Count{Blocks: 1, Bytes: e.Bytes})
		}
	}
	return moved, nil
}
