package migration

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// A copy at a peer is out of date when its block changed after it had moved, and went to another peer, or when its owner
// deleted it: a reader who asks that peer would be given bytes that are no more. Only the source knows, from its account of the
// drain, and it tells the peer to forget the copy before it says goodbye.

const (
	// mostForgetting is how long a drain tells its peers what to forget, lastForgetting once its time is up: that comes off
	// the tail which every deadline keeps back (5 s or more).
	mostForgetting = 5 * time.Second
	lastForgetting = time.Second
	// forgetLanes is how many copies peers are told of at once: as many as there are connections kept to a holder.
	forgetLanes = 4
	// forgetPuts is how many records are put into a fallback at once: each takes a bucket's latency twice, and little else.
	forgetPuts = 64
	// mostStirred bounds the directories that are remembered; of more, all that was moved is looked at.
	mostStirred = 1 << 16
)

// stirred is where files may be that were moved and then deleted.
type stirred struct {
	mu   sync.Mutex
	dirs map[string]bool // STORE/SCOPE/DIRECTORY
	all  bool            // anywhere
}

func (s *stirred) stir(dir string) {
	if dir == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = s.all || len(s.dirs) >= mostStirred; s.all {
		return
	}
	if s.dirs == nil {
		s.dirs = map[string]bool{}
	}
	s.dirs[dir] = true
}

func (s *stirred) everywhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = true
}

func (s *stirred) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all || len(s.dirs) > 0
}

func (s *stirred) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all || s.dirs[id[:max(0, strings.LastIndexByte(id, '/'))]]
}

// withdraw tells peers which of their copies are out of date. It ends in time, even if a disk hangs.
func (d *Drain) withdraw(ctx context.Context) {
	if d.cfg.Forget == nil || len(d.cfg.Again) > 0 {
		return
	}
	late, cancel := linger(ctx, lastForgetting)
	defer cancel()
	late, end := context.WithTimeout(late, mostForgetting)
	ended := await.Beside(func() {
		defer end()
		d.tellAll(late)
	})
	<-late.Done()
	select {
	case <-ended:
	case <-time.After(diskio.Suspect):
		d.survey.missed.Store(true) // tellAll may write yet to where lines are now: shorten must not move them
	}
}

func (d *Drain) tellAll(ctx context.Context) {
	last, err := d.account.ledger.LastLines()
	if err != nil {
		d.log.Warn("cannot read what was moved: peers may keep copies that are out of date", "err", err)
		return
	}
	peerAt := func(node string) string { return d.peers.heard(node).Address }
	w := newWithdrawal(d.cfg, d.source, peerAt, func() bool { return ctx.Err() == nil })
	w.last, w.ledger, w.stirred = last, d.account.ledger, &d.survey.stirred
	// Blocks that changed come first, of all accounts: a reader may be given what such a block was, and time may be too short for all.
	if last.Any() {
		w.tellOf(ctx, w.copies(ctx, nil))
	}
	if d.account.history.struck {
		w.tellOf(ctx, w.past(ctx, nil, d.account.history.current))
	}
	var earlier []string
	if !d.cfg.Once {
		earlier = d.cfg.Earlier
	}
	for _, dir := range earlier {
		w.tellOf(ctx, w.earlier(dir, changed))
	}
	if d.cfg.Namesake != nil && !d.cfg.Once {
		if err := d.askNamesakes(ctx); err != nil {
			d.log.Warn("peers may keep what blocks were on another machine of this node's name", "err", err)
		}
	}
	if d.survey.stirred.any() {
		if cleared := w.clearances(d.cfg.Dir, d.survey.stirred.has); cleared != nil {
			w.tellOf(ctx, w.copies(ctx, cleared))
			if d.account.history.struck {
				w.tellOf(ctx, w.past(ctx, cleared, d.account.history.current))
			}
		}
	}
	for _, dir := range earlier {
		w.tellOf(ctx, w.earlier(dir, deleted))
	}
	w.report(ctx)
}

// askNamesakes makes peers look at what they have from another machine of this node's name: old versions of blocks that have now moved.
func (d *Drain) askNamesakes(ctx context.Context) error {
	var ids []inventory.BlockID
	var all error
	ask := func() {
		if len(ids) > 0 {
			all = errors.Join(all, d.cfg.Namesake(ctx, ids))
		}
		ids = ids[:0]
	}
	for e, err := range manifest.Read(manifest.Path(d.cfg.Dir, manifest.Moved)) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return errors.Join(all, err)
		}
		if ids = append(ids, inventory.BlockID(e.ID)); len(ids) == reading.MostAsked {
			ask()
		}
	}
	ask()
	return all
}

// ForgetRest tells peers to forget copies that are out of date, where the drain of cfg, which is over, could not: these peers were away,
// and may be back with their copies. It returns the peers that are still away, and an error when there was no time for all, or not all
// copies can be known.
func ForgetRest(ctx context.Context, cfg DrainConfig) (away []string, err error) {
	peerAt := lastHeard(cfg.Peers) // no coordinator need be there
	w := newWithdrawal(cfg, newSource(cfg), peerAt, func() bool { return ctx.Err() == nil })
	told, err := diskio.UnlessHung(ctx, func() (bool, error) {
		w.tellOf(ctx, w.past(ctx, nil, func(manifest.Entry) bool { return false }))
		w.report(ctx)
		return true, cmp.Or(w.err, ctx.Err())
	})
	if !told {
		return nil, err
	}
	return slices.Sorted(maps.Keys(w.over)), err
}

// lastHeard returns a func that tells where peers were last heard of.
func lastHeard(peers func() []Peer) (peerAt func(node string) string) {
	at := map[string]string{}
	if peers != nil {
		for _, p := range peers() {
			at[p.Node] = p.Address
		}
	}
	return func(node string) string { return at[node] }
}

// stale is a copy that is out of date.
type stale struct {
	manifest.Entry
	deleted bool   // at the source
	account string // directory of the drain whose line says so, and where that line ends: it is spent once the peer was told; "": it is not
	end     int64
	past    bool // the line was struck out: its peer was away when others were told
}

// copies yields the copies of blocks that this drain moved and that changed since; with cleared, of blocks that were deleted from the stores
// in it.
func (w *withdrawal) copies(ctx context.Context, cleared map[*inventory.Store]bool) iter.Seq[stale] {
	return func(yield func(stale) bool) {
		n := 0
		for line, err := range manifest.Lines(manifest.Path(w.cfg.Dir, manifest.Moved)) {
			if err != nil {
				w.missed(0, err)
				return
			}
			e := line.Entry
			current := w.last.Counts(e.ID, n)
			n++
			c := stale{Entry: e, deleted: current}
			if !current {
				c.account, c.end = w.cfg.Dir, line.End
			}
			switch {
			case e.Outcome == manifest.Voided || e.Tag() == "":
				continue
			case current != (cleared != nil), current && !w.deleted(e.ID, cleared, w.stirred.has), !current && !w.superseded(e):
				continue
			case ctx.Err() != nil:
				w.missed(1, ctx.Err())
			case !yield(c):
				return
			}
		}
	}
}

// past yields the copies in lines that were struck out when an earlier run ended: their peers were not there to be told, or had the same
// version as the peers that took their place. They are copies of blocks that have changed; with cleared, of blocks that were deleted
// from the stores in it. current says of a line whether its version is what the block is now, as far as that is known.
func (w *withdrawal) past(ctx context.Context, cleared map[*inventory.Store]bool, current func(manifest.Entry) bool) iter.Seq[stale] {
	return func(yield func(stale) bool) {
		for line, err := range manifest.AllLines(manifest.Path(w.cfg.Dir, manifest.Moved)) {
			if err != nil {
				w.missed(0, err)
				return
			}
			e := line.Entry
			if e.Outcome != manifest.Struck || e.Peer == "" || e.Tag() == "" || current(e) {
				continue
			}
			if w.away(ctx, e.Peer) || cleared == nil && !w.source.becameAnother(e) || cleared != nil && !w.deleted(e.ID, cleared, w.stirred.has) {
				continue
			}
			if ctx.Err() != nil || !yield(stale{Entry: e, account: w.cfg.Dir, end: line.End, past: true}) {
				return
			}
		}
	}
}

// why a copy is out of date.
type why int

const (
	changed why = 1 << iota
	deleted
)

// earlier yields the copies that a withdrawn drain moved, and of which the node, which stayed, has another version or nothing now.
func (w *withdrawal) earlier(dir string, is why) iter.Seq[stale] {
	return func(yield func(stale) bool) {
		anywhere := func(string) bool { return true }
		var cleared map[*inventory.Store]bool
		if is&deleted != 0 {
			if cleared = w.clearances(dir, anywhere); cleared == nil && is == deleted {
				return
			}
		}
		for s, most := range cleared {
			cleared[s] = most || s.Hollow()
		}
		for line, err := range manifest.AllLines(manifest.Path(dir, manifest.Moved)) {
			if err != nil {
				w.missed(1, err) // that many at least
				return
			}
			if !w.goesOn() {
				return
			}
			e := line.Entry
			if e.Outcome == manifest.Voided || e.Peer == "" || e.Tag() == "" ||
				!(is&changed != 0 && w.source.becameAnother(e)) && !w.deleted(e.ID, cleared, anywhere) {
				continue
			}
			if !yield(stale{Entry: e, account: dir, end: line.End, past: e.Outcome == manifest.Struck}) {
				return
			}
		}
	}
}

// superseded reports whether the version that a line says was moved has become another. It does not matter if that went to the same peer:
// the peers have the old one still to which it was handed on.
func (w *withdrawal) superseded(e manifest.Entry) bool {
	another, void := w.last.Became(e)
	if void {
		return w.source.becameAnother(e) // lost after all; if it was not because of a change, the old copy is the last one
	}
	return another
}

// clearances returns the stores that moved files were deleted from, and whether most of them were; nil: there are none. An
// engine that cleans up as it ends deletes most of its files, which does not mean that its blocks are of no use: peers keep
// their copies then.
func (w *withdrawal) clearances(dir string, maybe func(id string) bool) (cleared map[*inventory.Store]bool) {
	count := func(of func(s *inventory.Store, id inventory.BlockID) bool) map[*inventory.Store]int {
		n := map[*inventory.Store]int{}
		for e, err := range manifest.Read(manifest.Path(dir, manifest.Moved)) {
			if err != nil || !w.goesOn() {
				return nil
			}
			// What landed is another node's, or came back: it was no file of this store when it was moved.
			s := w.source.stores[inventory.BlockID(e.ID).Store()]
			if s != nil && e.Outcome != manifest.Voided && of(s, inventory.BlockID(e.ID)) && !w.landed(e.ID) {
				n[s]++
			}
		}
		return n
	}
	deleted := count(func(s *inventory.Store, id inventory.BlockID) bool { return maybe(string(id)) && wasDeleted(s, id) })
	if len(deleted) == 0 {
		return nil
	}
	moved := count(func(s *inventory.Store, _ inventory.BlockID) bool { return deleted[s] > 0 })
	if moved == nil {
		return nil
	}
	cleared = map[*inventory.Store]bool{}
	for s, n := range deleted {
		if cleared[s] = 2*n > moved[s]; !cleared[s] {
			s.Cleared.Delete(dir)
		} else if _, said := s.Cleared.LoadOrStore(dir, true); !said {
			w.cfg.Log.Info("most of what was moved is deleted here: the peers keep it", "store", s.Name, "blocks", n)
		}
	}
	return cleared
}

// deleted reports whether a block is to be forgotten because its file is no more.
func (w *withdrawal) deleted(id string, cleared map[*inventory.Store]bool, maybe func(id string) bool) bool {
	s := w.source.stores[inventory.BlockID(id).Store()]
	most, some := cleared[s]
	return some && !most && maybe(id) && wasDeleted(s, inventory.BlockID(id)) && !w.landed(id)
}

// landed reports whether the vault has a block, or may have it.
func (w *withdrawal) landed(id string) bool {
	_, err := w.cfg.Vault.Find(inventory.BlockID(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// wasDeleted reports whether a cache's file was removed out of a directory that is still there. Shuffle files go when the app is
// done or its executor ends, which does not mean that nobody reads them.
func wasDeleted(s *inventory.Store, id inventory.BlockID) bool {
	if s.Kind != inventory.KindCache || s.Layout != inventory.LayoutFiles {
		return false
	}
	if _, err := s.Find(id); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for _, r := range s.Roots {
		if info, err := r.Stat(path.Dir(id.Name())); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}
