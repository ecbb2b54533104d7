package migration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// simFleet is a fleet of nodes that are being taken away, on a fluid model of its network: a stream's rate is its fair share of the
// sender's link, the receiver's link and the receiver's disk. The product's own code decides everything else: which block is next (plan,
// rank), to which peer (fan), whether it would be there in time (pace), which senders a receiver takes, and what room it gives (budget).
type simFleet struct {
	simSetup
	t     *testing.T
	dir   string
	rng   *rand.Rand
	nodes []*simNode
	ring  []*simNode // the coordinator's order of peers
	lanes []*simLane
	now   time.Time
	start time.Time
	worth []time.Duration // by the block's number
	size  []int64
	born  []*simNode
	since []time.Time // when the block landed
	at    []*simNode  // the node that it landed at; nil: it is only where it was born

	sent, wasted float64 // bytes
	again        float64 // bytes that landed a second time, or were broken off
	worst        int     // most streams into one receiver
}

type simSetup struct {
	name       string
	pools      []int // nodes in each pool
	spot       int   // how many of the pools can be taken away
	notice     time.Duration
	tail       time.Duration
	link       float64 // bytes per second
	bytes      int64   // on each node
	poor       int     // how many nodes of ten have a quarter of the link; as many have a slow disk, and as many no room
	sigma      float64 // of the logarithm of the blocks' values
	oneIn      int     // one in so many nodes of pool 1 goes in the second wave
	advised    int     // how many pools are advised to go before some of them do
	waves      func(*simFleet)
	order      string // value: as in the product; oldest, random: without regard to worth
	sparkPeers bool   // peers at random from a list that is a minute old, and every peer takes everything
	alone      bool   // the coordinator is dead: the peers are the last 32 that it named
	seed       uint64
	quick      bool // simulated with every run of the tests
}

type simNode struct {
	name, zone, pool string
	link, disk       float64
	room             int64
	budget           receiver.Budget
	inbound          int   // streams that it serves
	blocks           []int // born here
	held             []int // landed here from others

	noticed, until, gone time.Time // zero: it stays
	plan                 simPlan
	spool                *plan.Plan
	fan                  *fan
	stale                []Peer
	heard                time.Time

	up, down linkUse
}

// linkUse is what the streams at one end use of its link.
type linkUse struct{ streams, used float64 }

type simPlan interface {
	takeInTime(peer string, room, affordable int64) (plan.Entry, bool, time.Duration, error)
	GiveBack(e plan.Entry, delay time.Duration, why string)
	Settle(n int)
}

// simPlanned is the product's plan.
type simPlanned struct{ *plan.Plan }

func (p simPlanned) takeInTime(peer string, room, affordable int64) (plan.Entry, bool, time.Duration, error) {
	return takeInTime(p.Plan, peer, room, affordable)
}

type simLane struct {
	from, to *simNode
	peer     *peerState
	pace     pace
	entry    plan.Entry
	busy     bool
	left     float64 // bytes of the block that are not there yet
	covered  int64   // bytes of it that have room set aside
	kept     func()  // its announced room is no longer set aside
	idle     time.Time
	rate     float64
	more     float64
	over     bool
}

const (
	simPeers  = 32 // so many the coordinator names (coordinator/roster.go)
	simLanes  = 2  // connections to a peer, by default
	simTold   = time.Second
	simRetry  = 2 * time.Second // what a node under notice says (agent/state.go)
	simBlocks = 1250            // blocks of a node, if all had the median size
	simSmall  = 4 << 20         // a block up to this size has its room set aside when it is announced (allotBytes in receiver/allotment.go)
)

func (s simSetup) run(t *testing.T) (out simResult) {
	synctest.Test(t, func(t *testing.T) {
		f := &simFleet{simSetup: s, t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(s.seed, 17)), start: time.Now(), now: time.Now()}
		f.build()
		s.waves(f)
		f.sail()
		out = f.result()
	})
	return out
}

// build makes unequal nodes: some have a quarter of the link, some a slow disk, some hardly any room.
func (f *simFleet) build() {
	for pool, n := range f.pools {
		for range n {
			i := len(f.nodes)
			n := &simNode{name: fmt.Sprintf("node-%03d", i), pool: f.poolName(pool), zone: fmt.Sprintf("zone-%d", pool%3), link: f.link, disk: f.link, room: 500 << 30}
			switch f.rng.IntN(10) / f.poor {
			case 0:
				n.link /= 4
			case 1:
				n.disk /= 10
			case 2:
				n.room = 2 << 30
			}
			n.budget.Streams = 8
			if f.sparkPeers {
				n.budget.Streams = 1 << 20
			}
			f.nodes = append(f.nodes, n)
		}
	}
	for _, i := range f.rng.Perm(len(f.nodes)) {
		f.ring = append(f.ring, f.nodes[i])
	}
	for _, n := range f.nodes {
		n.stale = f.peersOf(n)
	}
}

func (f *simFleet) poolName(i int) string {
	if i < f.spot {
		return fmt.Sprintf("pool-%d%s", i, spotPool)
	}
	return fmt.Sprintf("pool-%d-on-demand", i)
}

// leave gives a node its notice after that time.
func (f *simFleet) leave(n *simNode, after time.Duration) {
	n.noticed = f.start.Add(after)
	n.gone = n.noticed.Add(f.notice)
	n.until = n.gone.Add(-f.tail)
	median := float64(f.bytes) / simBlocks
	for left := f.bytes; left > 0; {
		size := min(left, int64(median*math.Exp(f.rng.NormFloat64())))
		i := len(f.size)
		f.size = append(f.size, max(size, 1))
		f.worth = append(f.worth, time.Duration(float64(20*time.Second)*math.Exp(f.sigma*f.rng.NormFloat64())))
		f.born, f.at, f.since = append(f.born, n), append(f.at, nil), append(f.since, time.Time{})
		n.blocks = append(n.blocks, i)
		left -= size
	}
}

func (f *simFleet) block(i int, value time.Duration) inventory.Block {
	name := fmt.Sprint(i)
	m := inventory.Member{Name: name, Bytes: f.size[i]}
	if f.at[i] != nil {
		m.Root, m.ChangeTime = inventory.InVault, f.since[i].UnixNano()
	}
	return inventory.Block{ID: inventory.BlockID("cache/-/" + name), Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []inventory.Member{m}, Value: value}
}

func simNumber(e plan.Entry) (i int) {
	fmt.Sscan(e.ID.Name(), &i)
	return i
}

// peersOf is what the coordinator would tell a node now. It hears of a notice simTold after it came.
func (f *simFleet) peersOf(asker *simNode) (all []Peer) {
	start, last := slices.Index(f.ring, asker), []Peer(nil) // last: peers that are advised to go
	for i := range f.ring {
		n := f.ring[(start+1+i)%len(f.ring)]
		if n == asker || n.room <= 0 || !n.noticed.IsZero() && !n.noticed.Add(simTold).After(f.now) {
			continue
		}
		p := Peer{Node: n.name, Zone: n.zone, Pool: n.pool, RoomBytes: n.room, Advised: f.isAdvised(n)}
		if p.Advised {
			last = append(last, p)
		} else if all = append(all, p); len(all) == simPeers {
			break
		}
	}
	return append(all, last[:min(len(last), simPeers-len(all))]...)
}

func (f *simFleet) isAdvised(n *simNode) bool {
	for pool := range f.advised {
		if n.pool == f.poolName(pool) {
			return true
		}
	}
	return false
}

// sail lets time pass until all leaving nodes have left.
func (f *simFleet) sail() {
	leavers := slices.DeleteFunc(slices.Clone(f.nodes), func(n *simNode) bool { return n.noticed.IsZero() })
	slices.SortFunc(leavers, func(a, b *simNode) int { return a.noticed.Compare(b.noticed) })
	step := f.notice / 600
	for round := 0; ; round++ {
		var next time.Time
		busy := false
		for _, n := range leavers {
			switch {
			case f.now.Before(n.noticed):
				if next.IsZero() {
					next = n.noticed
				}
			case n.plan == nil:
				f.begin(n)
				fallthrough
			case f.now.Before(n.until):
				busy = true
				f.tend(n)
			}
		}
		if !busy && next.IsZero() {
			return
		}
		if !busy {
			time.Sleep(next.Sub(f.now))
			f.now = time.Now()
			continue
		}
		f.lanes = slices.DeleteFunc(f.lanes, func(l *simLane) bool { return l.over })
		f.share()
		for _, l := range f.lanes {
			f.carry(l, step)
		}
		time.Sleep(step)
		f.now = time.Now()
		for _, l := range f.lanes {
			if !l.over && !f.now.Before(l.from.until) {
				f.end(l, nil)
			}
		}
	}
}

// begin acts on a node's notice: its blocks are planned, and streams to it are refused.
func (f *simFleet) begin(n *simNode) {
	peers := map[string]*peerState{}
	n.fan = newFan(n.zone, n.pool, peers)
	n.fan.roll = f.rng.Float64
	if f.order == "value" {
		p := plan.New(plan.Config{Dir: filepath.Join(f.dir, n.name)}) // the directory does not exist: the plan stays in memory
		for _, i := range n.blocks {
			p.Add(f.t.Context(), f.block(i, f.worth[i]))
		}
		for _, i := range n.held {
			p.Add(f.t.Context(), f.block(i, f.worth[i]))
		}
		p.Seal()
		n.plan, n.spool = simPlanned{p}, p
	} else {
		q := &simQueue{}
		for _, i := range append(slices.Clone(n.blocks), n.held...) {
			q.all = append(q.all, plan.Entry{Block: f.block(i, 0)})
		}
		if f.order == "random" {
			f.rng.Shuffle(len(q.all), func(i, j int) { q.all[i], q.all[j] = q.all[j], q.all[i] })
		}
		n.plan = q
	}
	for _, l := range f.lanes {
		if l.to == n && !l.over {
			f.end(l, func() { l.peer.failed(f.now, simRetry) })
		}
	}
}

// simQueue hands out blocks first come, first served.
type simQueue struct{ all []plan.Entry }

func (q *simQueue) takeInTime(_ string, room, _ int64) (plan.Entry, bool, time.Duration, error) {
	for i, e := range q.all {
		if e.Bytes() <= room {
			copy(q.all[1:i+1], q.all[:i]) // blocks that are too large keep their places
			q.all = q.all[1:]
			return e, true, 0, nil
		}
	}
	if len(q.all) > 0 {
		return plan.Entry{}, false, 0, plan.ErrNoRoom
	}
	return plan.Entry{}, false, 0, plan.ErrSettled
}
func (q *simQueue) GiveBack(e plan.Entry, _ time.Duration, _ string) {
	q.all = slices.Insert(q.all, 0, e)
}
func (q *simQueue) Settle(int) {}

// tend is what a drain does beside its lanes.
func (f *simFleet) tend(n *simNode) {
	if f.now.Sub(n.heard) >= lookForPeers {
		n.heard = f.now
		peers := n.stale
		if !f.alone && !f.sparkPeers {
			peers = f.peersOf(n)
		}
		n.fan.hear(n.name, peers)
		sent := int64(0)
		for _, p := range n.fan.peers {
			sent += p.moved.Bytes
		}
		n.fan.need = float64(f.bytes-sent) / n.until.Sub(f.now).Seconds()
		n.fan.review(f.now, sent)
	}
	lanes := simLanes
	if f.sparkPeers {
		lanes = 1
	}
	for p := f.choose(n); p != nil; p = f.choose(n) {
		p.lanes++
		f.open(n, p)
	}
	for _, p := range n.fan.thin(f.now, lanes) {
		p.lanes++
		f.open(n, p)
	}
}

func (f *simFleet) choose(n *simNode) *peerState {
	if !f.sparkPeers {
		return n.fan.choose(f.now, f.bytes/int64(n.fan.width))
	}
	if n.fan.active() >= 8 { // spark.storage.decommission.shuffleBlocks.maxThreads
		return nil
	}
	free := slices.DeleteFunc(slices.Clone(n.fan.order), func(p *peerState) bool { return p.lanes > 0 || p.rest.After(f.now) })
	if len(free) == 0 {
		return nil
	}
	return free[f.rng.IntN(len(free))]
}

func (f *simFleet) open(n *simNode, p *peerState) {
	i := slices.IndexFunc(f.nodes, func(other *simNode) bool { return other.name == p.Node })
	to := f.nodes[i]
	if !to.noticed.IsZero() && !f.now.Before(to.noticed) {
		p.failed(f.now, simRetry)
		n.fan.ended(p, f.now)
		return
	}
	if err := to.budget.Enter(n.name, f.alone); err != nil {
		p.failed(f.now, receiver.RetryBusy)
		n.fan.ended(p, f.now)
		return
	}
	p.shared = to.budget.Shared(n.name)
	to.inbound++
	f.worst = max(f.worst, to.inbound)
	f.lanes = append(f.lanes, &simLane{from: n, to: to, peer: p})
}

// end closes a lane, and gives the block that it carried back to the plan.
func (f *simFleet) end(l *simLane, failed func()) {
	l.over = true
	l.to.budget.Leave(l.from.name)
	l.to.inbound--
	if l.busy {
		f.drop(l)
	}
	if failed != nil {
		failed()
	}
	l.from.fan.ended(l.peer, f.now)
}

// share gives each busy stream its share of the links. What some streams cannot use goes to the others.
func (f *simFleet) share() {
	var open []*simLane
	for _, l := range f.lanes {
		l.rate = 0
		if !l.busy && f.now.Before(l.idle) {
			continue
		}
		l.idle = time.Time{}
		open = append(open, l)
		l.from.up, l.to.down = linkUse{}, linkUse{}
	}
	for _, l := range open {
		l.from.up.streams++
		l.to.down.streams++
	}
	for range 4 {
		for _, l := range open {
			up, down := l.from.link-l.from.up.used, min(l.to.link, l.to.disk)-l.to.down.used
			l.more = min(up/l.from.up.streams, down/l.to.down.streams)
		}
		for _, l := range open {
			l.rate += l.more
			l.from.up.used += l.more
			l.to.down.used += l.more
		}
	}
}

// carry moves what a lane can carry in one step.
func (f *simFleet) carry(l *simLane, step time.Duration) {
	if l.over {
		return
	}
	if !l.busy && f.now.Before(l.idle) {
		return
	}
	can := l.rate * step.Seconds()
	f.sent += can
	moved := can
	for can > 0 {
		if !l.busy && !f.next(l) {
			break
		}
		n := min(can, l.left)
		can, l.left = can-n, l.left-n
		if !f.cover(l) {
			f.end(l, func() { l.peer.failed(f.now, 0) })
			break
		}
		if l.left > 0 {
			break
		}
		f.land(l)
	}
	f.sent -= can
	if moved -= can; moved > 0 {
		l.pace.carried(f.now.Add(step), int64(moved))
		l.peer.speed = l.pace.rate
	}
	if l.busy && f.order == "value" && l.pace.hopeless(f.now.Add(step), l.from.until, int64(l.left)) {
		f.drop(l)
	}
}

// drop gives back the block that a lane carries: what was sent of it is wasted.
func (f *simFleet) drop(l *simLane) {
	f.wasted += float64(l.entry.Bytes()) - l.left
	l.to.room += l.covered
	l.kept()
	l.from.plan.GiveBack(l.entry, 0, "")
	l.busy = false
}

// cover sets aside room for what came of a block beyond what has room already, as a receiver does. It returns false if others took that
// room.
func (f *simFleet) cover(l *simLane) bool {
	bytes := l.entry.Bytes()
	came := bytes - int64(l.left)
	if came <= l.covered {
		return true
	}
	more := min(bytes-l.covered, 3*came)
	if more > l.to.room {
		more = came - l.covered
	}
	if more > l.to.room {
		return false
	}
	l.covered += more
	l.to.room -= more
	return true
}

func (f *simFleet) next(l *simLane) bool {
	if l.over {
		return false
	}
	if l.peer.surplus {
		f.end(l, nil)
		return false
	}
	e, ok, _, err := l.from.plan.takeInTime(l.peer.Node, l.to.room, l.pace.affordable(f.now, l.from.until, 0, l.from.fan.typical()))
	if err == plan.ErrNoRoom {
		f.end(l, func() { l.peer.failed(f.now, 0) })
		return false
	}
	if !ok {
		l.pace.rest()
		l.idle = f.now.Add(paceStep)
		return false
	}
	l.pace.start(f.now)
	l.entry, l.busy, l.left = e, true, float64(e.Bytes())
	l.covered, l.kept = e.Bytes(), func() {}
	if l.covered > simSmall {
		l.covered, l.kept = l.to.budget.ByWord(l.from.name, e.Bytes(), l.to.room)
	}
	l.to.room -= l.covered
	return true
}

func (f *simFleet) land(l *simLane) {
	i := simNumber(l.entry)
	if f.at[i] != nil {
		f.again += float64(f.size[i])
	}
	f.at[i], f.since[i] = l.to, f.now
	l.to.held = append(l.to.held, i)
	l.peer.moved.Bytes += f.size[i]
	l.peer.failures = 0
	l.from.plan.Settle(1)
	l.kept()
	l.busy = false
}
