package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A copy at a peer is out of date when its block changed after it had moved and went to another peer, and when its owner
// deleted it: a reader who asks there would be given bytes that are no more. The source alone knows, from its account of the
// drain, and tells the peer to forget the copy before it says goodbye.

const (
	// mostForgetting is how long a drain tells its peers what to forget, lastForgetting once its time is up: that comes off
	// the tail which every deadline keeps back (5 s or more).
	mostForgetting = 5 * time.Second
	lastForgetting = time.Second
	// forgetLanes is how many are told of at once: as many as there are connections kept to a holder.
	forgetLanes = 4
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
	ended := beside(func() {
		defer end()
		d.tellAll(late)
	})
	<-late.Done()
	select {
	case <-ended:
	case <-time.After(suspect):
	}
}

func (d *Drain) tellAll(ctx context.Context) {
	last, err := d.ledger.severalTimes()
	if err != nil {
		d.cfg.Log.Warn("cannot read what was moved: peers may keep copies that are out of date", "err", err)
		return
	}
	w := newWithdrawal(d, func() bool { return ctx.Err() == nil })
	w.last = last
	var cleared map[*Store]bool
	if d.stirred.any() {
		cleared = w.clearances(d.cfg.Dir, d.stirred.has)
	}
	if len(last) > 0 || cleared != nil {
		w.tellOf(ctx, w.copies(ctx, cleared))
	}
	for _, dir := range d.cfg.Earlier {
		if !d.cfg.Once {
			w.tellOf(ctx, w.earlier(dir))
		}
	}
	w.report()
}

// report says what came of it, and once what did not.
func (w *withdrawal) report() {
	if w.told > 0 {
		w.d.cfg.Log.Info("peers forgot copies that were out of date", "blocks", w.told)
	}
	if w.left == 0 {
		delete(w.said, "")
	} else if w.news("") {
		w.d.cfg.Log.Warn("peers keep copies that are out of date", "blocks", w.left, "err", w.err)
	}
}

// news is true the first time.
func (w *withdrawal) news(of string) bool {
	said := w.said[of]
	w.said[of] = true
	return !said
}

func (w *withdrawal) tellOf(ctx context.Context, copies iter.Seq[stale]) {
	var lanes errgroup.Group
	lanes.SetLimit(forgetLanes)
	for c := range copies {
		lanes.Go(func() error { w.tell(ctx, c); return nil })
	}
	_ = lanes.Wait()
}

// withdrawal is one run of withdraw, or one look of LookBack.
type withdrawal struct {
	d      *Drain
	goesOn func() bool
	last   map[string]lastLine // of blocks with several lines

	unlocated atomic.Bool // nobody says who has what

	mu         sync.Mutex
	at         map[string]string // where peers are that are none of this run
	over       map[string]bool   // peers that need not be asked any more
	said       map[string]bool   // what the log was told and need not be told again: by peer, by account and store, "" for the sum
	told, left int
	err        error // why, of one that is left
}

func newWithdrawal(d *Drain, goesOn func() bool) *withdrawal {
	return &withdrawal{d: d, goesOn: goesOn, last: map[string]lastLine{}, at: map[string]string{}, over: map[string]bool{}, said: map[string]bool{}}
}

// stale is a copy that is out of date.
type stale struct {
	Entry
	deleted bool   // at the source
	account string // of the drain before that says so, and where its line ends there
	end     int64
}

// copies yields what this drain has moved and is out of date.
func (w *withdrawal) copies(ctx context.Context, cleared map[*Store]bool) iter.Seq[stale] {
	return func(yield func(stale) bool) {
		n := 0
		for e, err := range readLedger(ledgerPath(w.d.cfg.Dir, Moved)) {
			if err != nil {
				w.missed(0, err)
				return
			}
			is, several := w.last[e.ID]
			current := !several || n == is.at && !is.void
			n++
			c := stale{Entry: e, deleted: current}
			switch {
			case e.Outcome == voided || e.tag() == "":
				continue
			case current && !w.deleted(e.ID, cleared, w.d.stirred.has), !current && !w.d.superseded(e, is):
				continue
			case ctx.Err() != nil:
				w.missed(1, ctx.Err())
			case !yield(c):
				return
			}
		}
	}
}

// earlier yields what a drain that was withdrawn has moved, of which the node, which stayed, has something else now.
func (w *withdrawal) earlier(dir string) iter.Seq[stale] {
	return func(yield func(stale) bool) {
		anywhere := func(string) bool { return true }
		cleared := w.clearances(dir, anywhere)
		for s, most := range cleared {
			cleared[s] = most || s.hollow()
		}
		for line, err := range ledgerLines(ledgerPath(dir, Moved)) {
			if err != nil {
				w.missed(1, err) // that many at least
				return
			}
			if !w.goesOn() {
				return
			}
			e := line.Entry
			if e.Outcome == voided || e.tag() == "" || !w.d.becameAnother(e) && !w.deleted(e.ID, cleared, anywhere) {
				continue
			}
			if !yield(stale{Entry: e, account: dir, end: line.end}) {
				return
			}
		}
	}
}

// becameAnother reports whether there is another version here than the line says was moved. A map output that comes home has one time
// for all of its files, the newest of what they had.
func (d *Drain) becameAnother(e Entry) bool {
	now, err := d.findAgain(BlockID(e.ID))
	v, known := e.version()
	return err == nil && known && now.version() != v && now.tag() != e.tag()
}

// superseded reports whether what a line says was moved has become something else that is not at the same peer.
func (d *Drain) superseded(e Entry, is lastLine) bool {
	if !is.void {
		return is.entry.Peer != e.Peer && is.entry.Version != e.Version
	}
	return d.becameAnother(e) // lost after all; if it was not because of a change, the old copy is the last one
}

// clearances has the stores that moved files were deleted from, and whether most of them were; nil: there is none. An
// engine that cleans up as it ends deletes most of its files, and does not say by it that its blocks are of no use: what
// peers have of them stays.
func (w *withdrawal) clearances(dir string, maybe func(id string) bool) (cleared map[*Store]bool) {
	moved, deleted := map[*Store]int{}, map[*Store]int{}
	for e, err := range readLedger(ledgerPath(dir, Moved)) {
		if err != nil || !w.goesOn() {
			return nil
		}
		s := w.d.stores[BlockID(e.ID).Store()]
		if s == nil || e.Outcome == voided {
			continue
		}
		switch gone := maybe(e.ID) && s.deleted(BlockID(e.ID)); {
		case w.landed(e.ID): // another node's, or one that came back: it was no file of this store when it was moved
		case gone:
			deleted[s]++
			fallthrough
		default:
			moved[s]++
		}
	}
	for s, n := range deleted {
		if cleared == nil {
			cleared = map[*Store]bool{}
		}
		if cleared[s] = 2*n > moved[s]; cleared[s] && w.news(dir+" "+s.Name) {
			w.d.cfg.Log.Info("most of what was moved is deleted here: the peers keep it", "store", s.Name, "blocks", n)
		}
	}
	return cleared
}

// deleted reports whether a block is to be forgotten because its file is no more.
func (w *withdrawal) deleted(id string, cleared map[*Store]bool, maybe func(id string) bool) bool {
	s := w.d.stores[BlockID(id).Store()]
	most, some := cleared[s]
	return some && !most && maybe(id) && s.deleted(BlockID(id)) && !w.landed(id)
}

// landed reports whether the vault has a block, or may have it.
func (w *withdrawal) landed(id string) bool {
	_, err := w.d.cfg.Vault.find(BlockID(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// hollow reports whether there is nothing at all in one of its directories: a disk that was not mounted at boot looks like that.
func (s *Store) hollow() bool {
	return slices.ContainsFunc(s.roots, func(r *os.Root) bool {
		f, err := r.Open(".")
		if err != nil {
			return true
		}
		defer f.Close()
		names, _ := f.Readdirnames(1)
		return len(names) == 0
	})
}

// deleted reports whether a cache's file was removed out of a directory that is still there. Shuffle files go when the app is
// done or its executor ends, which does not mean that nobody reads them.
func (s *Store) deleted(id BlockID) bool {
	if s.Kind != KindCache || s.Layout != LayoutFiles {
		return false
	}
	if _, err := s.Find(id); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for _, r := range s.roots {
		if info, err := r.Stat(path.Dir(id.Name())); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

// tell has a peer forget a copy.
func (w *withdrawal) tell(ctx context.Context, c stale) {
	d := w.d
	if f := d.cfg.Fallback; f != nil && c.Peer == f.Peer() {
		return
	}
	w.mu.Lock()
	over := w.over[c.Peer]
	w.mu.Unlock()
	var err, heirs error
	if !over {
		var h Holder
		if h, err = w.holder(ctx, c.Peer); err == nil {
			err = d.cfg.Forget(ctx, h, BlockID(c.ID), c.tag())
		}
	}
	if over || err != nil && !errors.Is(err, errNotOwned) {
		heirs = w.tellHeirs(ctx, c)
	}
	switch {
	case over, heirs != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotForgotten)):
		w.missed(1, heirs)
	case err == nil, errors.Is(err, fs.ErrNotExist):
		d.cfg.Log.Debug("a peer forgot a copy that was out of date", "block", c.ID, "peer", c.Peer)
		if c.deleted {
			d.ledger.void(c.Entry)
			d.ledger.add(Entry{ID: c.ID, Bytes: c.Bytes, Outcome: Skipped, Reason: "deleted while the node was draining"})
		}
		d.forgotten(c)
		w.mu.Lock()
		w.told++
		delete(w.said, c.Peer)
		w.mu.Unlock()
	case errors.Is(err, errNotForgotten):
		d.forgotten(c)
		d.cfg.Log.Debug("a peer keeps its copy of a block", "block", c.ID, "peer", c.Peer, "err", err)
	default: // it is of an earlier version, or does not answer
		w.mu.Lock()
		if w.news(c.Peer) {
			d.cfg.Log.Info("a peer is not told what to forget", "peer", c.Peer, "err", err)
		}
		w.over[c.Peer] = true
		w.mu.Unlock()
		w.missed(1, err)
	}
}

// tellHeirs has all others forget a copy that its peer does not have any more, or does not answer for: it may have handed it on.
func (w *withdrawal) tellHeirs(ctx context.Context, c stale) error {
	switch is, several := w.last[c.ID]; {
	case w.d.cfg.ForgetElsewhere == nil, several && is.entry.tag() == c.tag(): // what they have is up to date
		return nil
	case w.unlocated.Load():
		return errUnlocated
	}
	err := w.d.cfg.ForgetElsewhere(ctx, c.Peer, BlockID(c.ID), c.tag())
	if errors.Is(err, errUnlocated) {
		w.unlocated.Store(true)
	}
	return err
}

// forgotten notes that a peer need not be told of a copy again.
func (d *Drain) forgotten(c stale) {
	if c.account == "" {
		return
	}
	if err := spend(c.account, c.Entry, c.end); err != nil {
		d.cfg.Log.Debug("a peer will be told again what to forget", "block", c.ID, "peer", c.Peer, "err", err)
	}
}

func (w *withdrawal) missed(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left += n; err != nil {
		w.err = err
	}
}

// holder is where a peer's blocks are read, which may have been one of an earlier run alone.
func (w *withdrawal) holder(ctx context.Context, node string) (Holder, error) {
	w.mu.Lock()
	address := w.at[node]
	w.mu.Unlock()
	w.d.mu.Lock()
	if p := w.d.peers[node]; p != nil {
		address = p.Address
	}
	w.d.mu.Unlock()
	if address != "" {
		return Holder{node, address}, nil
	}
	address, err := w.d.cfg.Where(ctx, node)
	if err != nil {
		return Holder{}, fmt.Errorf("ask where %s is: %w", node, err)
	}
	if address == "" {
		return Holder{}, fmt.Errorf("%s is gone", node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[node] = address
	return Holder{node, address}, nil
}
