package migration

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// Peer is another node that may take blocks.
type Peer struct {
	Node      string
	Address   string
	Zone      string
	Pool      string
	RoomBytes int64
}

// DrainConfig is what a drain needs.
type DrainConfig struct {
	Node     string
	Incident string
	Dir      string // of this incident: plan and manifest
	Stores   []*Store
	Vault    *Vault

	// Peers are those last heard of; asked again while the drain runs.
	Peers func() []Peer
	// Dial connects to a peer whose identity it has verified, speaking Protocol.
	Dial func(ctx context.Context, p Peer) (net.Conn, error)
	// Connections to each peer: one loses on small blocks (nothing overlaps), more than four gain nothing (measured).
	Connections int
	// MaxBytesPerSecond caps the whole drain; 0: no cap.
	MaxBytesPerSecond int64
	Log               *slog.Logger
}

// Drain empties the node's stores into its peers. It is used once.
type Drain struct {
	cfg    DrainConfig
	stores map[string]*Store
	plan   *plan
	ledger *ledger
	limit  *rate.Limiter
	sent   atomic.Int64 // bytes of blocks written to peers, receipted or not

	mu       sync.Mutex
	phase    Phase
	found    Count
	peers    map[string]*peerState
	handled  map[version]bool // moved by an earlier run of this drain, or changed since the scan began
	rateAt   time.Time
	rateSent int64
	rate     int64
}

// Phase is where a drain stands.
type Phase string

const (
	PhaseScanning Phase = "scanning" // still looking, already sending
	PhaseSending  Phase = "sending"
	PhaseDrained  Phase = "drained" // everything is accounted for
)

// peerState is what a drain knows of a peer, shared by its lanes.
type peerState struct {
	Peer
	moved    Count
	trouble  string
	failures int // in a row
}

// Progress is a snapshot of a drain.
type Progress struct {
	Phase          Phase
	Found          Count // blocks to carry that the scan has met so far
	Moved          Count
	Lost           Count
	Skipped        Count
	BytesPerSecond int64
	Peers          []PeerProgress
}

// PeerProgress is a peer's part.
type PeerProgress struct {
	Node    string
	Moved   Count
	Trouble string // empty: well
}

// NewDrain prepares a drain in cfg.Dir. If an earlier run of the same drain left its account there, what it moved is not
// sent again.
func NewDrain(cfg DrainConfig) (*Drain, error) {
	d := &Drain{cfg: cfg, stores: map[string]*Store{}, peers: map[string]*peerState{}, handled: map[version]bool{}, phase: PhaseScanning}
	for _, s := range cfg.Stores {
		d.stores[s.Name] = s
	}
	limit, burst := rate.Inf, 0
	if cfg.MaxBytesPerSecond > 0 {
		limit, burst = rate.Limit(cfg.MaxBytesPerSecond), laneBuffer
	}
	d.limit = rate.NewLimiter(limit, burst)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		cfg.Log.Error("no directory for the plan and the manifest; draining without", "err", err)
	}
	earlier := d.recall()
	l, err := openLedger(cfg.Dir)
	if err != nil {
		// A full or read-only disk: the blocks matter more than the account of them.
		cfg.Log.Error("the manifest will be kept in numbers only", "err", err)
	}
	d.ledger, d.plan = l, newPlan(cfg.Dir)
	l.summary.Moved = earlier
	d.found = earlier
	return d, nil
}

// recall reads what an earlier run moved: 16 bytes of memory a block, only after a crash.
func (d *Drain) recall() (moved Count) {
	for e, err := range readLedger(ledgerPath(d.cfg.Dir, Moved)) {
		if err != nil {
			d.cfg.Log.Warn("cannot read what was moved before; sending it again", "err", err)
			break
		}
		var v version
		if n, err := hex.Decode(v[:], []byte(e.Version)); n != len(v) || err != nil {
			continue
		}
		d.handled[v] = true
		moved.Blocks++
		moved.Bytes += e.Bytes
	}
	return moved
}

// receiptGrace is how long a lane waits for receipts after sending has stopped. It is part of the tail that every
// deadline keeps back (5 s or more).
const receiptGrace = 2 * time.Second

// Run moves everything, or as much as can be before ctx ends; blocks that no peer has by then are lost, each with its
// reason. It returns an error only when the account itself could not be kept.
func (d *Drain) Run(ctx context.Context) (Summary, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	g, work := errgroup.WithContext(work)
	g.Go(func() error {
		defer d.plan.seal()
		d.scanUntilQuiet(work)
		return nil
	})
	g.Go(func() error {
		defer stop() // every block is settled
		return d.runLanes(work)
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		d.cfg.Log.Error("the drain stopped early", "err", err)
	}
	why := "the deadline came first"
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		why = "the drain was stopped"
	}
	for e, err := range d.plan.rest() {
		if err != nil {
			d.cfg.Log.Error("part of the plan cannot be read: its blocks are lost and not named", "err", err)
			break
		}
		d.lose(e, cmpReason(d.lastWords(e), why))
	}
	d.setPhase(PhaseDrained)
	sum, err := d.ledger.close()
	return sum, errors.Join(err, d.plan.close())
}

func cmpReason(detail, why string) string {
	if detail == "" {
		return why
	}
	return why + ": " + detail
}

// lastWords is what most likely kept a block from leaving.
func (d *Drain) lastWords(e entry) string {
	if e.why != "" {
		return e.why
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.peers) == 0 {
		return "no peer to send to"
	}
	var troubles []string
	for _, p := range d.peers {
		if p.trouble == "" {
			return ""
		}
		troubles = append(troubles, p.Node+": "+p.trouble)
	}
	slices.Sort(troubles)
	return strings.Join(troubles[:min(len(troubles), 3)], "; ")
}

func (d *Drain) lose(e entry, why string) {
	d.ledger.add(Entry{ID: string(e.ID), Bytes: e.Bytes(), Outcome: Lost, Reason: why})
}

func (d *Drain) setPhase(p Phase) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = p
}

// maxScans bounds the passes over stores that an engine goes on writing to.
const maxScans = 10

// scanUntilQuiet fills the plan. When everything found is settled it looks again for what was committed meanwhile, until
// a pass finds nothing new.
func (d *Drain) scanUntilQuiet(ctx context.Context) {
	var since time.Time
	for pass := range maxScans {
		began := time.Now()
		found := d.scan(ctx, since, pass)
		if ctx.Err() != nil || pass > 0 && found == 0 {
			return
		}
		d.setPhase(PhaseSending)
		if err := d.plan.idle(ctx); err != nil {
			return
		}
		since = began
	}
	d.cfg.Log.Warn("the stores keep changing: what is written from now on is not carried", "passes", maxScans)
}

// scan plans the blocks that changed after since and have not been handled in this version, and counts them.
func (d *Drain) scan(ctx context.Context, since time.Time, pass int) (found int) {
	take := func(it Item, err error) bool {
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			d.cfg.Log.Warn("part of a store cannot be read: what is there stays behind", "err", err)
			return true
		case it.Skip != "":
			if pass == 0 {
				d.ledger.add(Entry{ID: string(it.ID), Bytes: it.Bytes(), Outcome: Skipped, Reason: it.Skip})
			}
			return true
		case !d.fresh(it.Block, since):
			return true
		}
		found++
		d.mu.Lock()
		d.found.Blocks++
		d.found.Bytes += it.Bytes()
		d.mu.Unlock()
		if err := d.plan.add(ctx, it.Block); err != nil {
			d.lose(entry{Block: it.Block}, "the deadline came before it was planned")
			return true
		}
		return true
	}
	for _, s := range d.cfg.Stores {
		for it, err := range s.Scan(ctx) {
			if !take(it, err) {
				return found
			}
		}
	}
	for it, err := range d.cfg.Vault.blocks() {
		if !take(it, err) {
			return found
		}
	}
	return found
}

// fresh reports whether a block needs planning. Only what changed after the drain began is remembered, so memory stays
// flat on a node whose engines have stopped.
func (d *Drain) fresh(b Block, since time.Time) bool {
	changed := time.Unix(0, b.changed())
	if changed.Before(since.Add(-clockGrain)) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	recent := changed.After(d.ledger.summary.Started.Add(-clockGrain))
	if !recent && len(d.handled) == 0 {
		return true
	}
	v := b.version()
	if d.handled[v] {
		return false
	}
	if recent {
		d.handled[v] = true
	}
	return true
}

// clockGrain is more than a file system's time stamps lag behind the clock (a kernel tick, 10 ms at most).
const clockGrain = 50 * time.Millisecond

// lookForPeers is how often a drain asks who its peers are now.
const lookForPeers = 500 * time.Millisecond

// runLanes keeps lanes to every peer until all blocks are settled or ctx ends.
func (d *Drain) runLanes(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var lanes sync.WaitGroup
	defer lanes.Wait()
	tick := time.NewTicker(lookForPeers)
	defer tick.Stop()
	for {
		for _, p := range d.cfg.Peers() {
			if p.Node == d.cfg.Node {
				continue
			}
			d.mu.Lock()
			state, known := d.peers[p.Node]
			if known {
				state.Peer = p // it may have come back at another address
			} else {
				state = &peerState{Peer: p}
				d.peers[p.Node] = state
			}
			d.mu.Unlock()
			if known {
				continue
			}
			for range d.cfg.Connections {
				lanes.Go(func() {
					if d.runLane(ctx, state) {
						stop()
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if d.plan.settled() {
				return nil
			}
		}
	}
}

// Back-off of a peer that is in trouble: short at first, because 30 seconds are all there is.
const (
	backOffLeast = 100 * time.Millisecond
	backOffMost  = 5 * time.Second
)

func backOff(failures int) time.Duration {
	return min(backOffLeast<<min(failures, 10), backOffMost)
}

// runLane sends blocks to one peer over one connection after another, until all blocks are settled (true) or ctx ends.
func (d *Drain) runLane(ctx context.Context, p *peerState) (settled bool) {
	for ctx.Err() == nil {
		err := d.connectAndSend(ctx, p)
		if errors.Is(err, io.EOF) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		pause := d.note(p, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// refusedError is a peer's no to a whole stream.
type refusedError struct {
	reason string
	retry  time.Duration
}

func (e *refusedError) Error() string { return e.reason }

// note keeps what went wrong with a peer and says how long to leave it alone.
func (d *Drain) note(p *peerState, err error) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		p.trouble, p.failures = "", 0
		return 0
	}
	if p.trouble == "" {
		d.cfg.Log.Warn("peer in trouble", "peer", p.Node, "err", err)
	}
	p.trouble = err.Error()
	p.failures++
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.retry > 0 {
		return min(refused.retry, backOffMost)
	}
	return backOff(p.failures)
}

// Progress tells how far the drain is.
func (d *Drain) Progress() Progress {
	sum := d.ledger.counts()
	d.mu.Lock()
	defer d.mu.Unlock()
	if took := time.Since(d.rateAt); took >= time.Second {
		sent := d.sent.Load()
		if !d.rateAt.IsZero() {
			d.rate = int64(float64(sent-d.rateSent) / took.Seconds())
		}
		d.rateAt, d.rateSent = time.Now(), sent
	}
	p := Progress{Phase: d.phase, Found: d.found, Moved: sum.Moved, Lost: sum.Lost, Skipped: sum.Skipped, BytesPerSecond: d.rate}
	for _, s := range d.peers {
		p.Peers = append(p.Peers, PeerProgress{s.Node, s.moved, s.trouble})
	}
	slices.SortFunc(p.Peers, func(a, b PeerProgress) int { return strings.Compare(a.Node, b.Node) })
	return p
}

// moved books blocks whose receipts came from a peer.
func (d *Drain) moved(p *peerState, blocks ...entry) {
	entries := make([]Entry, len(blocks))
	var n Count
	for i, e := range blocks {
		v := e.version()
		entries[i] = Entry{ID: string(e.ID), Bytes: e.Bytes(), Outcome: Moved, Peer: p.Node, Version: hex.EncodeToString(v[:])}
		n.Blocks++
		n.Bytes += e.Bytes()
	}
	d.ledger.add(entries...)
	d.mu.Lock()
	p.moved.Blocks += n.Blocks
	p.moved.Bytes += n.Bytes
	d.mu.Unlock()
	d.plan.settle(len(blocks))
}

// describe names a block and a peer in an error.
func describe(id BlockID, peer string, err error) error {
	return fmt.Errorf("send block %s to %s: %w", id, peer, err)
}
