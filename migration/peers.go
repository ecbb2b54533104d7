package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// peers are the other nodes that a drain knows: who takes blocks, which of them are sent to, and what became of that.
type peers struct {
	cargo
	carriers    *carriers
	traffic     *traffic
	out         *outflow
	connections int
	fallback    bool // what no peer takes has another place
	// As in DrainConfig.
	who     func() []Peer
	missed  func() bool
	advised func() bool

	tookAt diskio.Moment // that a peer last took something
	vacant chan struct{} // has one when a lane has ended

	mu    sync.Mutex
	known map[string]*peerState
	fan   *fan
}

func newPeers(cfg DrainConfig, c cargo, carriers *carriers, traffic *traffic, out *outflow) *peers {
	ps := &peers{
		cargo: c, carriers: carriers, traffic: traffic, out: out, connections: cfg.Connections, fallback: cfg.Fallback != nil,
		who: cfg.Peers, missed: cfg.Missed, advised: cfg.Advised, vacant: make(chan struct{}, 1), known: map[string]*peerState{},
	}
	ps.fan = newFan(cfg.Zone, cfg.Pool, ps.known)
	for _, s := range cfg.Stores {
		ps.fan.stores = append(ps.fan.stores, s.Name)
	}
	return ps
}

// peerState is what a drain knows of a peer, shared by its lanes.
type peerState struct {
	Peer
	moved    inventory.Count
	trouble  string
	failures int       // in a row
	declines time.Time // from when it is believed that it takes nothing, as it answered last; zero: it did not say so
	full     time.Time // since when it has no room, and takes nothing; zero: it has, or another trouble
	told     bool      // the log says that it has no room
	warned   bool      // the log says that it is in another trouble, and not that it is well again

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

func (ps *peers) hear(ctx context.Context) {
	peers := ps.who()
	if !ps.toAdvised() {
		peers = slices.DeleteFunc(peers, func(p Peer) bool { return p.Advised })
	}
	until, stranded := ps.out.until(ctx), ps.stranded()
	silent := ps.silent(time.Now())
	need := ps.account.toCarry()
	ps.mu.Lock()
	for _, p := range ps.fan.order {
		p.silent = silent[p]
	}
	ps.fan.stranded = stranded
	ps.fan.hear(ps.source.node, peers)
	ps.fan.need = 0
	if !until.IsZero() {
		ps.fan.need = float64(need-ps.out.sent.Load()) / max(time.Until(until).Seconds(), 1e-3)
	}
	ps.fan.review(time.Now(), ps.out.sent.Load())
	ps.mu.Unlock()
	ps.keepInPlace()
}

// silent returns the peers that neither take nor answer anything, on any lane to them. It has traffic count such lanes out: no other lane
// waits for them. Only one goroutine may call it.
func (ps *peers) silent(now time.Time) map[*peerState]bool {
	all := map[*peerState]bool{}
	for _, l := range ps.carriers.lanes() {
		silent := l.signs.silent(now, l.owed, l.conn)
		ps.traffic.quiet(&l.flow.load, silent)
		if other, is := all[l.peer]; is {
			silent = silent && other
		}
		all[l.peer] = silent
	}
	return all
}

// stranded returns, by store, the most that any peer in use has room for, of the stores of which a larger block waits. Peers in use only
// for such blocks (fan.needs) do not count.
func (ps *peers) stranded() (larger map[string]int64) {
	all := ps.carriers.lanes()
	ps.mu.Lock()
	lanes := slices.DeleteFunc(all, func(l *lane) bool { return ps.fan.needs(l.peer) })
	was := ps.fan.stranded
	greeting := slices.ContainsFunc(ps.fan.order, func(p *peerState) bool { return p.lanes > 0 && p.open == 0 && p.failures == 0 })
	ps.mu.Unlock()
	if greeting { // a peer that has not answered yet may have room
		return was
	}
	most := map[string]int64{}
	for _, l := range lanes {
		room := l.books.roomLeft()
		for _, store := range ps.fan.stores {
			most[store] = max(most[store], room.Left(store))
		}
	}
	maps.DeleteFunc(most, func(store string, bytes int64) bool { return !ps.plan.Holds(store, bytes) })
	return most
}

// toAdvised says whether peers are sent to that are advised to go.
func (ps *peers) toAdvised() bool { return ps.advised != nil && ps.advised() }

// wanted returns a peer for every lane that is to be opened now, and counts it.
func (ps *peers) wanted() (all []*peerState) {
	now := time.Now()
	found := ps.account.progress().Found.Bytes
	ps.mu.Lock()
	defer ps.mu.Unlock()
	share := max(0, found-ps.out.sent.Load()) / int64(ps.fan.width)
	for p := ps.fan.choose(now, share); p != nil; p = ps.fan.choose(now, share) {
		p.lanes++
		p.try(now)
		all = append(all, p)
	}
	for _, p := range ps.fan.thin(now, ps.connections) {
		for p.lanes < ps.connections {
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
func (ps *peers) elsewhere(than *peerState) bool {
	now := time.Now()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.fallback || slices.ContainsFunc(ps.fan.order, func(p *peerState) bool { return p != than && p.takes(now) })
}

// ended notes the end of a lane.
func (ps *peers) ended(p *peerState) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.fan.ended(p, time.Now())
	await.Mark(ps.vacant)
}

// Back-off of a peer that is in trouble: short at first, because 30 seconds are all there is.
const (
	backOffLeast = 100 * time.Millisecond
	backOffMost  = 5 * time.Second
)

func backOff(failures int) time.Duration {
	return min(backOffLeast<<min(failures, 10), backOffMost)
}

// turn reports whether another peer can have the place of one that is in trouble.
func (ps *peers) turn(p *peerState) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.surplus || len(p.parts) == 0 && ps.fan.spare(time.Now())
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
func (ps *peers) note(p *peerState, err error) time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.note(err, ps.log)
}

func (p *peerState) note(err error, log *slog.Logger) (rest time.Duration) {
	now, believed := time.Now(), p.declines
	p.try(now)
	p.trouble, p.declines = err.Error(), time.Time{}
	if errors.Is(err, errPeerFull) {
		p.declines = cmp.Or(believed, now.Add(fullSettles))
	}
	p.warn(now, err, log)
	var retry time.Duration
	if refused, ok := errors.AsType[*refusedError](err); ok {
		retry = refused.retry
		if refused.stays {
			p.declines = now
		}
	}
	return p.failed(time.Now(), retry)
}

// warn logs what a reader of the log is to know of a peer, once. A peer is full when it has taken nothing for a while: one whose room runs
// out takes a small block now and then, and one that is to leave says so only to the next stream. That it lets no other stream in beside an
// open one is no trouble.
func (p *peerState) warn(now time.Time, err error, log *slog.Logger) {
	_, refused := errors.AsType[*refusedError](err)
	full := errors.Is(err, errPeerFull)
	if full {
		p.full = cmp.Or(p.full, now)
	} else {
		p.full = time.Time{}
	}
	switch {
	case full && !p.told && now.Sub(p.full) >= fullSettles:
		p.told = true
		log.Warn("peer has no room for any block that is left", "peer", p.Node)
	case !full && !p.warned && !(refused && p.open > 0):
		p.warned = true
		log.Warn("peer in trouble", "peer", p.Node, "err", err)
	}
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
func (ps *peers) greeted(p *peerState) (failures int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.trouble = ""
	return p.failures
}

// declined says whether a peer is believed to take nothing. While a lane to it is open it is not, for that may find room yet.
func (p *peerState) declined(now time.Time) bool {
	return p.open == 0 && !p.declines.IsZero() && !p.declines.After(now)
}

// fits notes that a peer has room for some block after all: when it had not, not all of the stores was looked through.
func (ps *peers) fits(p *peerState) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.declines = time.Time{}
}

// granted notes what a peer granted to a stream, and says whether the stream goes on: not if the peer turns out to be advised to go while
// others take blocks.
func (ps *peers) granted(p *peerState, g wire.Grant) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.shared, p.said = g.Shared, g.Advised
	if g.Advised && ps.fan.others(time.Now()) && !ps.fan.needs(p) {
		return false
	}
	p.open++
	return true
}

// asks notes that a lane ends so that another can ask the peer anew what it has room for. It is called before that lane ends, or the grants
// of others would speak for the peer.
func (ps *peers) asks(p *peerState) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.asked = time.Now()
}

// parted notes the end of a stream that a peer had let begin.
func (ps *peers) parted(p *peerState) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.open--
}

func (ps *peers) failures(p *peerState) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.failures
}

// heard is a peer as it was last heard of; the zero Peer: it is none.
func (ps *peers) heard(node string) (p Peer) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if s := ps.known[node]; s != nil {
		p = s.Peer
	}
	return p
}

// measured notes how fast a lane to a peer is.
func (ps *peers) measured(p *peerState, speed float64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.speed = speed
}

// speed is how fast a lane to a peer was when that was last measured; 0: never.
func (ps *peers) speed(p *peerState) float64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.speed
}

// progress is what each peer has had.
func (ps *peers) progress() (all []PeerProgress) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.known {
		all = append(all, p.progress())
	}
	return all
}

// words says what most likely kept blocks from them; "": nothing is known of that.
func (ps *peers) words() string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.known) == 0 {
		return "no peer to send to: none is known that stays and has room"
	}
	var troubles []string
	for _, p := range ps.known {
		if p.trouble == "" {
			return ""
		}
		troubles = append(troubles, p.Node+": "+p.trouble)
	}
	slices.Sort(troubles)
	return strings.Join(troubles[:min(len(troubles), 3)], "; ")
}

// moved books blocks whose receipts came from a peer.
func (ps *peers) moved(p *peerState, blocks []plan.Entry) {
	ps.took(time.Now())
	n := ps.account.moved(p.Node, blocks)
	ps.mu.Lock()
	p.took(n)
	p.recover(ps.log)
	ps.mu.Unlock()
	ps.plan.Settle(len(blocks))
}

func (p *peerState) took(n inventory.Count) {
	p.moved = p.moved.Plus(n)
	p.tried = time.Time{}
}

// recover notes that a peer is well.
func (p *peerState) recover(log *slog.Logger) {
	if p.warned {
		log.Info("peer is well again", "peer", p.Node)
	}
	p.trouble, p.failures, p.full, p.warned = "", 0, time.Time{}, false
}

// describe names a block and a peer in an error.
func describe(id inventory.BlockID, peer string, err error) error {
	return fmt.Errorf("send block %s to %s: %w", id, peer, err)
}
