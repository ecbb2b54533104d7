package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// withdrawal is one run of withdraw, or one look of LookBack.
type withdrawal struct {
	cfg     DrainConfig
	source  *source
	ledger  *manifest.Ledger // nil: the drain is over
	stirred *stirred
	peerAt  func(node string) (address string) // of a peer; "": it is none
	goesOn  func() bool
	last    manifest.LastLines // of blocks with several lines

	unlocated atomic.Bool // nobody says who has what
	spending  sync.Mutex  // guards the lines of accounts

	mu         sync.Mutex
	at         map[string]string // addresses of peers that this run does not have
	over       map[string]bool   // peers that need not be asked any more
	said       map[string]bool   // what the log was told and need not be told again: by peer, "" for the sum
	told, left int
	err        error // why one of those is left
}

func newWithdrawal(cfg DrainConfig, source *source, peerAt func(node string) string, goesOn func() bool) *withdrawal {
	return &withdrawal{cfg: cfg, source: source, peerAt: peerAt, goesOn: goesOn, at: map[string]string{}, over: map[string]bool{}, said: map[string]bool{}}
}

func (w *withdrawal) tellOf(ctx context.Context, copies iter.Seq[stale]) {
	w.tellBy(ctx, forgetLanes, copies)
}

// tellBy tells peers of so many copies at once, and returns how long it waited for peers and the fallback.
func (w *withdrawal) tellBy(ctx context.Context, atPeers int, copies iter.Seq[stale]) (waited time.Duration) {
	var peers, fallback errgroup.Group
	peers.SetLimit(atPeers)
	fallback.SetLimit(forgetPuts)
	waits := func(began time.Time) { waited += time.Since(began) }
	for c := range copies {
		lanes := &peers
		if f := w.cfg.Fallback; f != nil && c.Peer == f.Peer() {
			lanes = &fallback
		}
		began := time.Now()
		lanes.Go(func() error { w.tell(ctx, c); return nil })
		waits(began)
	}
	defer waits(time.Now())
	_, _ = peers.Wait(), fallback.Wait()
	return waited
}

// tell makes a peer forget a copy, and the nodes to which it may have handed it on.
func (w *withdrawal) tell(ctx context.Context, c stale) {
	w.mu.Lock()
	over := w.over[c.Peer]
	w.mu.Unlock()
	var err, heirs error
	switch f := w.cfg.Fallback; {
	case over:
	case f != nil && c.Peer == f.Peer():
		bounded, done := context.WithTimeout(ctx, reading.ForgetTimeout)
		err = f.Forget(bounded, inventory.BlockID(c.ID), w.cfg.Node, c.Tag())
		done()
	default:
		var h reading.Holder
		if h, err = w.holder(ctx, c.Peer); err == nil {
			err = w.cfg.Forget(ctx, h, inventory.BlockID(c.ID), c.Tag())
		}
	}
	answered := !over && (err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, catalog.ErrKept))
	switch {
	case !answered && c.past: // heirs were told with the other peers, and this peer is told when it is back
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over[c.Peer] = true
		return
	case !errors.Is(err, catalog.ErrNotOwned): // a peer that was about to leave, and stayed, may have handed it on and have it still
		heirs = w.tellHeirs(ctx, c)
	}
	switch {
	case over, answered && heirs != nil && !(c.deleted && err == nil):
		w.missed(1, heirs)
	case err == nil, errors.Is(err, fs.ErrNotExist):
		w.cfg.Log.Debug("a peer forgot a copy that was out of date", "block", c.ID, "peer", c.Peer)
		if c.deleted {
			w.ledger.Void(c.Entry)
			w.ledger.Add(manifest.Entry{ID: c.ID, Bytes: c.Bytes, Outcome: manifest.Skipped, Reason: itIsDeleted})
		}
		w.forgotten(c)
		w.mu.Lock()
		w.told++
		delete(w.said, c.Peer)
		w.mu.Unlock()
	case errors.Is(err, catalog.ErrKept):
		w.forgotten(c)
		w.cfg.Log.Debug("a peer keeps its copy of a block", "block", c.ID, "peer", c.Peer, "err", err)
	default: // it does not answer, or cannot
		w.mu.Lock()
		if !calledOff(ctx) && w.news(c.Peer) {
			w.cfg.Log.Info("a peer is not told what to forget", "peer", c.Peer, "err", err)
		}
		w.over[c.Peer] = true
		w.mu.Unlock()
		w.missed(1, err)
	}
}

// tellHeirs makes all nodes but its peer forget a copy.
func (w *withdrawal) tellHeirs(ctx context.Context, c stale) error {
	switch {
	case w.cfg.ForgetElsewhere == nil, w.last.Names(c.Entry): // what they have is up to date
		return nil
	case w.unlocated.Load():
		return reading.ErrUnlocated
	}
	err := w.cfg.ForgetElsewhere(ctx, c.Peer, inventory.BlockID(c.ID), c.Tag())
	if errors.Is(err, reading.ErrUnlocated) {
		w.unlocated.Store(true)
	}
	return err
}

// forgotten notes that a peer need not be told of a copy again.
func (w *withdrawal) forgotten(c stale) {
	if c.account == "" {
		return
	}
	w.spending.Lock() // Spend gives the account's file its time back
	defer w.spending.Unlock()
	if err := manifest.Spend(c.account, c.Entry, c.end); err != nil {
		w.cfg.Log.Debug("a peer will be told again what to forget", "block", c.ID, "peer", c.Peer, "err", err)
	}
}

func (w *withdrawal) missed(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left += n; err != nil {
		w.err = err
	}
}

// holder returns where a peer's blocks are read. The peer may be one of an earlier run only.
func (w *withdrawal) holder(ctx context.Context, node string) (reading.Holder, error) {
	w.mu.Lock()
	address := w.at[node]
	w.mu.Unlock()
	if address = cmp.Or(w.peerAt(node), address); address != "" {
		return reading.Holder{Node: node, Address: address}, nil
	}
	address, err := w.cfg.Where(ctx, node)
	if err != nil {
		return reading.Holder{}, fmt.Errorf("ask where %s is: %w", node, err)
	}
	if address == "" {
		return reading.Holder{}, fmt.Errorf("%s is gone", node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[node] = address
	return reading.Holder{Node: node, Address: address}, nil
}

// away reports whether a peer cannot be told anything now. It may have taken millions of blocks, whose files need not be looked at then.
func (w *withdrawal) away(ctx context.Context, node string) bool {
	w.mu.Lock()
	over := w.over[node]
	w.mu.Unlock()
	if over {
		return true
	}
	if f := w.cfg.Fallback; f != nil && node == f.Peer() {
		return false
	}
	if _, err := w.holder(ctx, node); err == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[node] = true
	return true
}

// calledOff reports whether ctx was cancelled before its time was up: the node stays then, and tells the rest later.
func calledOff(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// report logs how many copies peers forgot, and once how many they keep.
func (w *withdrawal) report(ctx context.Context) {
	if w.told > 0 {
		w.cfg.Log.Info("peers forgot copies that were out of date", "blocks", w.told)
	}
	if w.left == 0 {
		delete(w.said, "")
	} else if !calledOff(ctx) && w.news("") {
		w.cfg.Log.Warn("not all peers could be told which copies are out of date", "blocks", w.left, "err", w.err)
	}
}

// news is true the first time.
func (w *withdrawal) news(of string) bool {
	said := w.said[of]
	w.said[of] = true
	return !said
}
