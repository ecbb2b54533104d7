package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// peerState is what a drain knows of a peer, shared by its lanes.
type peerState struct {
	Peer
	moved    inventory.Count
	trouble  string
	failures int       // in a row
	declines time.Time // from when it is believed that it takes nothing, as it answered last; zero: it did not say so

	lanes   int       // to it now
	open    int       // of those: it has greeted
	silent  bool      // on all of those it owes an answer, and has taken nothing for a while
	asked   time.Time // when a lane to it last ended for another one to ask it anew what it has room for
	tried   time.Time // since when there were lanes to it, and it took nothing; zero: it took something
	surplus bool      // its lanes are to end: others are faster, or are to be tried
	shared  bool      // it served other nodes, too, when the last lane to it began
	gone    bool      // no peer any more, by the newest list
	said    bool      // that it may leave itself, in its last grant
	rest    time.Time // it is not chosen before
	parts   []*part   // blocks that lanes to it broke off in
	speed   float64   // of a lane to it, bytes per second as last measured; 0: never
}

func (p *peerState) progress() PeerProgress { return PeerProgress{p.Node, p.moved, p.trouble} }

// lookForPeers is how often a drain asks who its peers are now.
const lookForPeers = 500 * time.Millisecond

// runLanes keeps lanes to some of the peers until all blocks are settled or ctx ends.
func (d *Drain) runLanes(ctx context.Context) {
	if d.plan.First(ctx) != nil || d.plan.Settled() {
		return // no peer is bothered for nothing
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.hearPeers(ctx) // before the fallback asks whether there are any
	var lanes sync.WaitGroup
	defer lanes.Wait()
	if d.fallback != nil {
		var upload func(helps bool)
		upload = func(helps bool) {
			if d.runFallback(ctx, helps, func() { lanes.Go(func() { upload(true) }) }) {
				stop()
			}
		}
		for range d.fallback.Streams {
			lanes.Go(func() { upload(false) })
		}
	}
	tick := time.NewTicker(lookForPeers)
	defer tick.Stop()
	for {
		for _, p := range d.wanted() {
			lanes.Go(func() {
				defer d.ended(p)
				if d.runLane(ctx, p) {
					stop()
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-d.vacant:
		case <-tick.C:
			if d.plan.Settled() {
				stop() // a lane whose peer is away has nobody to hear it from
				return
			}
			d.hearPeers(ctx)
		}
	}
}

func (d *Drain) hearPeers(ctx context.Context) {
	peers := d.cfg.Peers()
	if !d.toAdvised() {
		peers = slices.DeleteFunc(peers, func(p Peer) bool { return p.Advised })
	}
	until, stranded := d.out.until(ctx), d.stranded()
	silent := d.silent(time.Now())
	found, earlier := d.account.toCarry()
	d.mu.Lock()
	for _, p := range d.fan.order {
		p.silent = silent[p]
	}
	d.fan.stranded = stranded
	d.fan.hear(d.cfg.Node, peers)
	d.fan.need = 0
	if !until.IsZero() {
		d.fan.need = float64(found-earlier-d.out.sent.Load()) / max(time.Until(until).Seconds(), 1e-3)
	}
	d.fan.review(time.Now(), d.out.sent.Load())
	d.mu.Unlock()
	d.keepInPlace()
}

// silent returns the peers that neither take nor answer anything, on any lane to them. It has traffic count such lanes out: no other lane
// waits for them. Only one goroutine may call it.
func (d *Drain) silent(now time.Time) map[*peerState]bool {
	all := map[*peerState]bool{}
	for _, l := range d.carriers.lanes() {
		silent := l.silent(now)
		d.traffic.quiet(l, silent)
		if other, is := all[l.peer]; is {
			silent = silent && other
		}
		all[l.peer] = silent
	}
	return all
}

// stranded returns, by store, the most that any peer in use has room for, of the stores of which a larger block waits. Peers in use only
// for such blocks (fan.needs) do not count.
func (d *Drain) stranded() (larger map[string]int64) {
	all := d.carriers.lanes()
	d.mu.Lock()
	lanes := slices.DeleteFunc(all, func(l *lane) bool { return d.fan.needs(l.peer) })
	was := d.fan.stranded
	greeting := slices.ContainsFunc(d.fan.order, func(p *peerState) bool { return p.lanes > 0 && p.open == 0 && p.failures == 0 })
	d.mu.Unlock()
	if greeting { // a peer that has not answered yet may have room
		return was
	}
	most := map[string]int64{}
	for _, l := range lanes {
		room := l.roomLeft()
		for _, store := range d.fan.stores {
			most[store] = max(most[store], room.Left(store))
		}
	}
	maps.DeleteFunc(most, func(store string, bytes int64) bool { return !d.plan.Holds(store, bytes) })
	return most
}

// toAdvised says whether peers are sent to that are advised to go.
func (d *Drain) toAdvised() bool { return d.cfg.Advised != nil && d.cfg.Advised() }

// wanted returns a peer for every lane that is to be opened now, and counts it.
func (d *Drain) wanted() (all []*peerState) {
	now := time.Now()
	found, _ := d.account.toCarry()
	d.mu.Lock()
	defer d.mu.Unlock()
	share := max(0, found-d.out.sent.Load()) / int64(d.fan.width)
	for p := d.fan.choose(now, share); p != nil; p = d.fan.choose(now, share) {
		p.lanes++
		p.try(now)
		all = append(all, p)
	}
	for _, p := range d.fan.thin(now, d.cfg.Connections) {
		for p.lanes < d.cfg.Connections {
			p.lanes++
			all = append(all, p)
		}
	}
	return all
}

// try notes that a peer is to take something.
func (p *peerState) try(now time.Time) {
	if p.tried.IsZero() {
		p.tried = now
	}
}

// elsewhere reports whether another peer, or a fallback, takes blocks, as far as is known.
func (d *Drain) elsewhere(than *peerState) bool {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fallback != nil || slices.ContainsFunc(d.fan.order, func(p *peerState) bool { return p != than && p.takes(now) })
}

// ended notes the end of a lane.
func (d *Drain) ended(p *peerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fan.ended(p, time.Now())
	select {
	case d.vacant <- struct{}{}:
	default:
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

// errSurplus ends a lane to a peer that is one too many.
var errSurplus = errors.New("others are faster")

// errAskAgain ends a lane whose peer's grant is old.
var errAskAgain = errors.New("the peer may have more room by now, or less")

// runLane sends blocks to one peer over one connection after another, until all blocks are settled (true), ctx ends, or
// another peer is to have its turn.
func (d *Drain) runLane(ctx context.Context, p *peerState) (settled bool) {
	for ctx.Err() == nil {
		err := d.connectAndSend(ctx, p)
		switch {
		case err == plan.ErrSettled:
			return true
		case ctx.Err() != nil || err == errSurplus:
			return false
		case diskio.IsSilent(err), err == errAskAgain:
			continue // that is no fault of the peer
		}
		rest := d.note(p, err)
		if d.turn(p) {
			return false
		}
		diskio.Sleep(ctx, rest)
	}
	return false
}

// turn reports whether another peer can have the place of one that is in trouble.
func (d *Drain) turn(p *peerState) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.surplus || len(p.parts) == 0 && d.fan.spare(time.Now())
}

// refusedError is a peer's no to a whole stream.
type refusedError struct {
	reason string
	retry  time.Duration
	stays  bool
}

func (e *refusedError) Error() string { return e.reason }

// fullSettles is how long a peer must have been full before it is believed: an agent that has just started has no room until its
// disks were tried.
const fullSettles = 500 * time.Millisecond

// note keeps what went wrong with a peer and says how long to leave it alone.
func (d *Drain) note(p *peerState, err error) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.note(err, d.cfg.Log)
}

func (p *peerState) note(err error, log *slog.Logger) (rest time.Duration) {
	if p.failures == 0 {
		log.Warn("peer in trouble", "peer", p.Node, "err", err)
	}
	now, believed := time.Now(), p.declines
	p.try(now)
	p.trouble, p.declines = err.Error(), time.Time{}
	if errors.Is(err, errPeerFull) {
		p.declines = cmp.Or(believed, now.Add(fullSettles))
	}
	var retry time.Duration
	if refused, ok := errors.AsType[*refusedError](err); ok {
		retry = refused.retry
		if refused.stays {
			p.declines = now
		}
	}
	return p.failed(time.Now(), retry)
}

// failed notes that a peer does not take what it is sent, and says how long to leave it alone. retry is what the peer said
// of that, if it did.
func (p *peerState) failed(now time.Time, retry time.Duration) (rest time.Duration) {
	p.failures++
	rest = backOff(p.failures)
	if retry > 0 {
		rest = min(retry, backOffMost)
	}
	p.rest = now.Add(rest)
	return rest
}

// greeted says that a peer let a stream begin. It is well again only once it takes something (moved): one that greets and
// fails must not be asked ten times a second.
func (d *Drain) greeted(p *peerState) (failures int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.trouble = ""
	return p.failures
}

// declined says whether a peer is believed to take nothing. While a lane to it is open it is not, for that may find room yet.
func (p *peerState) declined(now time.Time) bool {
	return p.open == 0 && !p.declines.IsZero() && !p.declines.After(now)
}

// fits notes that a peer has room for some block after all: when it had not, not all of the stores was looked through.
func (d *Drain) fits(p *peerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.declines = time.Time{}
}

// granted notes what a peer granted to a stream, and says whether the stream goes on: not if the peer turns out to be advised to go while
// others take blocks.
func (d *Drain) granted(p *peerState, g wire.Grant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.shared, p.said = g.Shared, g.Advised
	if g.Advised && d.fan.others(time.Now()) && !d.fan.needs(p) {
		return false
	}
	p.open++
	return true
}

// asks notes that a lane ends so that another can ask the peer anew what it has room for. It is called before that lane ends, or the grants
// of others would speak for the peer.
func (d *Drain) asks(p *peerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.asked = time.Now()
}

// parted notes the end of a stream that a peer had let begin.
func (d *Drain) parted(p *peerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.open--
}

func (d *Drain) failures(p *peerState) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.failures
}

// speed is how fast a lane to a peer was when that was last measured; 0: never.
func (d *Drain) speed(p *peerState) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.speed
}

// peerAt is where a peer is; "": it is no peer.
func (d *Drain) peerAt(node string) (address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.peers[node]; p != nil {
		address = p.Address
	}
	return address
}

// moved books blocks whose receipts came from a peer.
func (d *Drain) moved(p *peerState, blocks []plan.Entry) {
	d.peerTook(time.Now())
	n := d.account.moved(p.Node, blocks)
	d.mu.Lock()
	p.took(n)
	p.recover(d.cfg.Log)
	d.mu.Unlock()
	d.plan.Settle(len(blocks))
}

func (p *peerState) took(n inventory.Count) {
	p.moved = p.moved.Plus(n)
	p.tried = time.Time{}
}

// recover notes that a peer is well.
func (p *peerState) recover(log *slog.Logger) {
	if p.failures > 0 {
		log.Info("peer is well again", "peer", p.Node)
	}
	p.trouble, p.failures = "", 0
}

// describe names a block and a peer in an error.
func describe(id inventory.BlockID, peer string, err error) error {
	return fmt.Errorf("send block %s to %s: %w", id, peer, err)
}
