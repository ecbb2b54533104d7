package migration

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// A block that landed here is a spare if its home, the node that it came from, is there, stays, and has it as it was: that node was
// advised to go and was not taken, or its notice was withdrawn. A node with little time has other blocks to carry first, which would
// be lost with it; if the home goes next, it carries its blocks again by itself (claims.go). So a drain asks the homes of blocks before
// it plans them.

const (
	// homePatience is how long a home is waited for, of the 30 seconds that Google gives.
	homePatience = time.Second
	// homesAtOnce is how many are asked at once.
	homesAtOnce = 4
	// askedLast bounds the last question. Its time comes off the five seconds and more that a drain ends before its deadline.
	askedLast = time.Second
)

// homes has the blocks whose homes are asked, and what is known of these homes.
type homes struct {
	cargo
	dir string // DrainConfig.Dir
	// As in DrainConfig.
	where   func(ctx context.Context, node string) (address string, err error)
	atHome  func(ctx context.Context, home reading.Holder, about []reading.Version) (reading.AtHome, error)
	whoElse func(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error)

	questions
	spares questions // that wait until this node has met what it has itself
	left   questions // spares that there was no time for: their homes may have been told to go since
	asks   bool      // there is something to ask about, and somebody who would
	silent atomic.Int32
	mute   atomic.Bool // nobody says who else has blocks whose homes are gone: each question would take its time

	mu sync.Mutex
	at map[string]string // addresses of nodes that were asked, "" for those that need not be asked again
}

func newHomes(cfg DrainConfig, c cargo) *homes {
	asks := cfg.AtHome != nil && cfg.Where != nil && cfg.Vault.Count().Blocks > 0
	return &homes{
		cargo: c, dir: cfg.Dir, where: cfg.Where, atHome: cfg.AtHome, whoElse: cfg.WhoElse,
		questions: newQuestions(cfg.Dir, "homes"), spares: newQuestions(cfg.Dir, "spares"), left: newQuestions(cfg.Dir, "left"), asks: asks, at: map[string]string{},
	}
}

// enter plans a block, at once or after its home was asked.
func (h *homes) enter(ctx context.Context, b inventory.Block) error {
	if h.asksAbout(b) && h.add(b) {
		return nil
	}
	return h.plan.Add(ctx, b)
}

// ask asks the homes of the blocks that wait, and plans these, until no more come.
func (h *homes) ask(ctx context.Context) {
	defer h.close()
	defer h.spares.close()
	for batch := range h.batches(ctx) {
		h.askEach(ctx, batch)
		h.planAll(ctx, batch)
	}
	h.planRest(ctx, &h.questions) // what a scan brings from now on it plans, or loses, itself
	h.planRest(ctx, &h.spares)
	if unread := h.spool.Left.Plus(h.spares.spool.Left); unread.Blocks > 0 {
		h.account.ledger.AddUnnamed(unread, "the plan could not be read back from "+h.dir)
	}
}

// planRest plans what waits to be, and lets nothing more wait.
func (h *homes) planRest(ctx context.Context, waiting *questions) {
	waiting.seal()
	for batch, _ := waiting.take(); len(batch) > 0; batch, _ = waiting.take() {
		h.planAll(ctx, batch)
	}
}

// planAll plans blocks, but makes spares wait: lanes that have nothing else yet would begin with those.
func (h *homes) planAll(ctx context.Context, batch []inventory.Block) {
	for _, b := range batch {
		if !h.skips(b) && !(b.Spare && h.spares.add(b)) && h.plan.Add(ctx, b) != nil {
			h.account.lose(plan.Entry{Block: b}, unplanned)
		}
	}
}

// skips reports whether a block stays here because its home has it in another version by now: nobody is to be given it any more.
func (h *homes) skips(b inventory.Block) bool {
	if b.Outdated {
		h.account.skip(&b, "it has changed on "+h.source.homeOf(&b)+", which it came from")
	}
	return b.Outdated
}

// leave has the home of a block that was not planned in time asked at last, and reports false if nobody will be.
func (h *homes) leave(b inventory.Block) bool {
	return h.asksAbout(b) && h.left.add(b)
}

func (h *homes) asksAbout(b inventory.Block) bool {
	return h.asks && h.source.homeOf(&b) != "" && h.silent.Load() < reading.MostSilent
}

// leaveBehind accounts for the spares that there was no time for. A spare is no loss if its home still has it, and stays.
func (h *homes) leaveBehind(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askedLast)
	defer cancel()
	left := &h.left
	defer left.close()
	left.seal()
	for batch, _ := left.take(); len(batch) > 0; batch, _ = left.take() {
		h.askEach(ctx, batch)
		for _, b := range batch {
			if h.skips(b) {
				continue
			}
			reason := why
			if !b.Spare {
				reason += ": " + h.source.homeOf(&b) + ", which it came from, had it, and leaves too or does not answer"
			}
			h.account.lose(plan.Entry{Block: b}, reason)
		}
	}
	if unread := left.spool.Left; unread.Blocks > 0 {
		h.account.ledger.AddUnnamed(unread, "what was left could not be read back from "+h.dir)
	}
}

// askEach marks the blocks that their homes have, in this version (Spare) or another (Outdated).
func (h *homes) askEach(ctx context.Context, batch []inventory.Block) {
	of := map[string][]int{}
	for i := range batch {
		batch[i].Spare, batch[i].Outdated = false, false
		if node := h.source.homeOf(&batch[i]); node != "" {
			of[node] = append(of[node], i)
		}
	}
	var asking errgroup.Group
	asking.SetLimit(homesAtOnce)
	for node, places := range of {
		asking.Go(func() error {
			asked := make([]reading.Version, len(places))
			for n, i := range places {
				asked[n] = reading.Version{ID: batch[i].ID, Tag: batch[i].Tag()}
			}
			is := h.askHome(ctx, node, asked)
			for _, n := range reading.Picked(is.Has, places) {
				batch[n].Spare = true
			}
			for _, n := range reading.Picked(is.Changed, places) {
				batch[n].Outdated = true
			}
			return nil
		})
	}
	_ = asking.Wait()
	h.askOthers(ctx, batch)
}

// askOthers marks blocks whose homes are gone and of which other nodes have a newer version. If this node was not away, nobody need be
// asked.
func (h *homes) askOthers(ctx context.Context, batch []inventory.Block) {
	if h.whoElse == nil || h.mute.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, homePatience)
	defer cancel()
	var places []int
	var ids []inventory.BlockID
	var asked []reading.Version
	for i, b := range batch {
		if node := h.source.homeOf(&b); node != "" && h.gone(node) {
			places, ids = append(places, i), append(ids, b.ID)
			asked = append(asked, reading.Version{ID: b.ID, Tag: b.Tag(), Origin: node, Modified: b.Modified().UnixNano()})
		}
	}
	if len(ids) == 0 {
		return
	}
	holders, _, err := h.whoElse(ctx, ids)
	if err != nil {
		h.mute.Store(true)
		h.log.Info("it is not known who else has blocks whose homes are gone, and may have newer versions", "err", err)
	}
	for _, holder := range holders {
		if h.passes(holder.Node) {
			continue
		}
		is, err := h.atHome(ctx, holder, asked)
		if err != nil {
			h.log.Info("it is not known whether a node has newer versions of blocks whose homes are gone", "node", holder.Node, "err", err)
			h.passBy(holder.Node)
		}
		for _, i := range reading.Picked(is.Changed, places) {
			batch[i].Outdated = true
		}
	}
}

// passes says whether a node need not be asked again; passBy notes that it need not, as it does not answer.
func (h *homes) passes(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	address, asked := h.at[node]
	return asked && address == "" || h.silent.Load() >= reading.MostSilent
}

func (h *homes) passBy(node string) {
	h.silent.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[node] = ""
}

// gone says whether a home is not asked, for it is not there.
func (h *homes) gone(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[node] == ""
}

// askHome returns what a node says of versions of blocks that came from it; nothing if it does not answer.
func (h *homes) askHome(ctx context.Context, node string, about []reading.Version) (is reading.AtHome) {
	if h.silent.Load() >= reading.MostSilent {
		return reading.AtHome{}
	}
	ctx, cancel := context.WithTimeout(ctx, homePatience)
	defer cancel()
	h.mu.Lock()
	address, known := h.at[node]
	h.mu.Unlock()
	var err error
	if !known {
		address, err = h.where(ctx, node)
	}
	if err == nil && address != "" {
		is, err = h.atHome(ctx, reading.Holder{Node: node, Address: address}, about)
	}
	if err != nil {
		h.log.Info("it is not known whether a node has still what came from it: it counts as nowhere else", "node", node, "err", err)
		h.silent.Add(1)
		address, is = "", reading.AtHome{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[node] = address
	return is
}
