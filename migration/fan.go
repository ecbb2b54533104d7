package migration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fan chooses the peers that a drain sends to: a few at a time, by lot, so that nodes that leave together do not all turn to
// the same ones. The lot is weighted: a peer of a pool that is being taken away is used last, as it may be next; a peer that is
// slow, nearly full, or of the pool of others in use is seldom used. Nothing is ruled out: with few pools there may be no other.
//
// It decides and does nothing: drains and the simulator act on it. Its owner guards it.
type fan struct {
	zone, own string // of the node that leaves: its zone, and its capacity pool
	peers     map[string]*peerState
	order     []*peerState // by name: what is drawn must not depend on a map's order
	pools     map[string]*poolState
	stores    []string         // of the node that leaves
	roll      func() float64   // in [0,1)
	stranded  map[string]int64 // by store: the most that the peers in use have room for, where a larger block waits

	width    int // how many peers to send to at once
	reviewed time.Time
	sent     int64
	before   float64 // the rate before it was made wider; 0: it was not
	holdOff  time.Time
	need     float64 // the rate at which what is left is sent in time; 0: there is time
	rate     float64 // that was last measured, 0: none was
	inPlace  keptPlaces
	hurry    bool // need was not reached once, while peers that are not advised served other nodes, too
}

// poolState counts the peers of one capacity pool that were ever known here, and those that are peers no more or are advised to go.
type poolState struct{ known, gone int }

const (
	// A drain begins with few peers: when a third of a fleet leaves at once, four peers of two streams each for every node
	// that leaves are four streams for every one that stays.
	leastWidth = 4
	mostWidth  = 16
	widthStep  = 2
	// widthGain is what two more peers must bring to be kept, and widthPace how soon that is judged.
	widthGain = 1.05
	widthPace = time.Second
	// widthHold is how long a width that was found to be enough is kept.
	widthHold = 5 * time.Second

	// Weights in the lot. The pool of a node that leaves is likely to be taken away with it (coordinated interruptions of one
	// machine type in one zone); a zone is a weaker sign of the same.
	weightDoomedPool = 1. / 64
	weightOwnZone    = 1. / 2
	weightSpot       = 1. / 16 // of two free peers, the one that nobody can take away is preferred
	weightAdvised    = 1. / 64
	weightLeast      = 1. / 1024
	weightMost       = 4
	// spotPool is how the names of pools end whose machines may be taken away (preemption's identities).
	spotPool = "-spot"
	// A pool counts as being taken away when a tenth of it is gone, two peers at least: one may have its own reasons.
	doomedShare = 0.1
	doomedLeast = 2
	// Of 30 machines of a fleet that EC2 advised to go, 9 were taken within hours (aws/aws-node-termination-handler#141), with a notice
	// of their own. So an advised peer may have what else would be lost. That is once each other peer has failed failedForAdvised times
	// in a row, which takes 0.7 s with the pauses, or has said that it takes nothing, or has not answered for silentForAdvised; and beside
	// the others where they have more nodes to serve than there is time for.
	failedForAdvised = 3
	silentForAdvised = 2 * time.Second
)

func newFan(zone, pool string, peers map[string]*peerState) *fan {
	return &fan{zone: zone, own: Peer{Zone: zone, Pool: pool}.capacity(), peers: peers, pools: map[string]*poolState{}, roll: rand.Float64, width: leastWidth}
}

// hear takes in who the peers are now, as the coordinator says, or as it said last.
func (f *fan) hear(self string, peers []Peer) {
	here := make(map[string]bool, len(peers))
	for _, p := range peers {
		here[p.Node] = true
		state := f.peers[p.Node]
		switch {
		case p.Node == self:
		case state == nil:
			state = &peerState{Peer: p}
			f.peers[p.Node] = state
			at, _ := slices.BinarySearchFunc(f.order, p.Node, func(s *peerState, name string) int { return strings.Compare(s.Node, name) })
			f.order = slices.Insert(f.order, at, state)
			f.poolOf(p.capacity()).known++
		default:
			// It may have come back at another address. The rest stays, and is read without the lock.
			state.Address, state.RoomBytes, state.VaultBytes, state.Places, state.Advised = p.Address, p.RoomBytes, p.VaultBytes, p.Places, p.Advised
			state.LargestBytes, state.LargestVaultBytes = p.LargestBytes, p.LargestVaultBytes
		}
	}
	for _, p := range f.pools {
		p.gone = 0
	}
	for _, state := range f.order {
		state.gone = !here[state.Node]
		if state.gone || state.Advised {
			f.poolOf(state.capacity()).gone++
		}
	}
}

// flee lets go of a peer in use whose pool turned out to be going away, if there is a free peer of another pool that did not fail: one at a
// time, so that each has its successor. A peer that is advised to go itself is let go of as soon as any takes blocks that is not.
func (f *fan) flee(now time.Time) {
	var doomed, advised *peerState
	haven, others := false, false
	for _, p := range f.order {
		used, bad := p.lanes > 0 && !p.surplus && !f.needs(p) && !f.sole(p, now), f.doomed(p.capacity())
		switch {
		case used && p.advised():
			advised = p
		case used && bad:
			doomed = p
		case !bad && !p.advised() && p.free(now) && p.failures == 0:
			haven = true
		}
		others = others || used && !p.advised() && p.open > 0 && p.failures == 0 && !f.hurry
	}
	switch {
	case advised != nil && others:
		advised.surplus = true
	case doomed != nil && haven:
		doomed.surplus = true
	}
}

// capacity names what is taken away together: a machine type of a zone, and how it is paid for. Empty: not known.
func (p Peer) capacity() string {
	if p.Pool == "" {
		return ""
	}
	return p.Zone + "/" + p.Pool
}

func (f *fan) poolOf(name string) *poolState {
	p := f.pools[name]
	if p == nil {
		p = &poolState{}
		f.pools[name] = p
	}
	return p
}

// doomed reports whether a pool is likely to lose more machines soon.
func (f *fan) doomed(pool string) bool {
	if pool == "" {
		return false
	}
	p := f.poolOf(pool)
	return pool == f.own || p.gone >= doomedLeast && float64(p.gone) >= doomedShare*float64(p.known)
}

// vacant reports whether another peer is wanted.
func (f *fan) vacant() bool { return f.active() < f.width }

// active counts the peers in use that there are blocks for.
func (f *fan) active() (n int) {
	for _, p := range f.order {
		if p.lanes > 0 && !p.surplus && !f.nothingFor(p) {
			n++
		}
	}
	return n
}

// needs reports whether a peer is said to have room for blocks that wait and have no other place. Such a peer is sent to beside the others,
// whatever may become of it.
func (f *fan) needs(p *peerState) bool {
	for store, larger := range f.stranded {
		if p.MostFor(store) > larger {
			return true
		}
	}
	return false
}

// choose draws the next peer to send to, of those that are not sent to and need no rest. share is how many bytes one is
// wanted for. Nil: there is none now.
func (f *fan) choose(now time.Time, share int64) *peerState {
	awaited := f.awaited(now)
	if !f.vacant() && len(awaited) == 0 {
		return nil
	}
	using, mean := map[string]int{}, f.typical()
	others := f.others(now)
	kept := f.active() >= f.width-1 && slices.ContainsFunc(f.order, func(p *peerState) bool { return !p.advised() && !p.gone && p.lanes == 0 }) // a place, for that peer
	for _, p := range f.order {
		if p.lanes > 0 {
			using[p.capacity()]++
		}
	}
	wide := f.active() >= leastWidth/2
	needy := !slices.ContainsFunc(f.order, func(p *peerState) bool { return p.lanes > 0 && p.failures == 0 && f.needs(p) })
	var drawn *peerState
	var total float64
	for _, p := range f.order {
		last := wide && f.risky(p) || p.advised() && (others || kept)
		switch {
		case len(awaited) > 0:
			if !slices.Contains(awaited, p) {
				continue
			}
		case !p.free(now) || last && !(needy && f.needs(p)) || f.nothingFor(p):
			continue
		}
		w := f.weight(p, share, mean) / float64(1+using[p.capacity()])
		total += w
		if f.roll()*total < w {
			drawn = p
		}
	}
	return drawn
}

// advised says whether a peer may leave itself, by the coordinator's word or by its own.
func (p *peerState) advised() bool { return p.Advised || p.said }

// others says whether advised peers are not wanted: there is no hurry, and another peer takes blocks.
func (f *fan) others(now time.Time) bool {
	return !f.hurry && slices.ContainsFunc(f.order, func(p *peerState) bool { return !p.advised() && p.takes(now) })
}

// takes says whether a peer takes blocks, or may in a moment, as far as it has shown.
func (p *peerState) takes(now time.Time) bool {
	switch {
	case p.gone:
		return false
	case p.failures == 0 && p.open > 0:
		return !p.silent
	case !p.tried.IsZero() && now.Sub(p.tried) >= silentForAdvised, p.failures > 0 && !p.declines.IsZero() && !p.declines.After(now):
		return false
	}
	return p.failures < failedForAdvised
}

// risky reports whether a peer will do only to begin with, when there is no other: what is sent to a machine that goes next
// has to be sent again.
func (f *fan) risky(p *peerState) bool {
	return f.doomed(p.capacity()) || strings.HasSuffix(p.Pool, spotPool) && slices.ContainsFunc(f.order, func(other *peerState) bool {
		return !other.gone && !strings.HasSuffix(other.Pool, spotPool)
	})
}

func (f *fan) weight(p *peerState, share int64, mean float64) float64 {
	w := 1.
	if f.doomed(p.capacity()) {
		w *= weightDoomedPool
	}
	if p.advised() {
		w *= weightAdvised
	}
	if strings.HasSuffix(p.Pool, spotPool) {
		w *= weightSpot
	}
	if p.Zone != "" && p.Zone == f.zone {
		w *= weightOwnZone
	}
	if p.speed > 0 {
		w *= min(p.speed/mean, weightMost)
	}
	if room := p.RoomFor(f.stores...); p.RoomBytes > 0 && room < share {
		w *= float64(room) / float64(share)
	}
	return max(w/float64(1+p.failures), weightLeast*weightDoomedPool)
}

// ended notes the end of a lane.
func (f *fan) ended(p *peerState, now time.Time) {
	p.lanes--
	if p.lanes == 0 && p.failures == 0 {
		p.tried = time.Time{} // there were no blocks for it
	}
	if p.lanes == 0 && p.surplus {
		p.surplus, p.rest = false, now.Add(widthHold)
	}
}

// thin are the peers that are sent to, are well, and have fewer lanes than they should.
func (f *fan) thin(now time.Time, lanes int) (all []*peerState) {
	for _, p := range f.order {
		if p.lanes > 0 && p.lanes < lanes && !p.surplus && !p.rest.After(now) {
			all = append(all, p)
		}
	}
	return all
}

// spare reports whether a peer could be had that is not sent to now.
func (f *fan) spare(now time.Time) bool {
	return slices.ContainsFunc(f.order, func(p *peerState) bool { return p.free(now) })
}

// free reports whether a peer could be had, and is not sent to.
func (p *peerState) free(now time.Time) bool { return p.lanes == 0 && !p.gone && !p.rest.After(now) }

// review makes the fan wider for as long as that brings more, and then keeps it. sent is what the drain has sent so far.
func (f *fan) review(now time.Time, sent int64) {
	f.flee(now)
	if f.reviewed.IsZero() || sent == f.sent {
		f.reviewed, f.sent = now, sent
		return
	}
	took := now.Sub(f.reviewed)
	if took < widthPace {
		return
	}
	rate := float64(sent-f.sent) / took.Seconds()
	f.reviewed, f.sent, f.rate = now, sent, rate
	f.hurry = f.hurry || rate < f.need && slices.ContainsFunc(f.order, func(p *peerState) bool { return p.lanes > 0 && p.shared && !p.advised() })
	f.rotate(now)
	full, judged := !f.vacant(), f.before
	f.before = 0
	switch {
	case judged > 0 && rate < judged*widthGain && f.width > leastWidth:
		f.width -= widthStep
		f.holdOff = now.Add(widthHold)
		f.shed(now)
	case full && !f.holdOff.After(now) && f.width < mostWidth && f.spare(now):
		f.width += widthStep
		f.before = rate
	}
}

// rotate lets go of the slowest peer for another one, where drains are in each other's way at their peers: a drain that kept
// its peers would send them blocks of little worth, while later drains find no place for blocks of much worth.
func (f *fan) rotate(now time.Time) {
	shared := slices.ContainsFunc(f.order, func(p *peerState) bool { return p.lanes > 0 && p.shared })
	another := func(p *peerState) bool { return p.free(now) && p.failures == 0 }
	if shared && slices.ContainsFunc(f.order, another) {
		if p := f.slowest(now); p != nil && p.speed > 0 {
			p.surplus = true
		}
	}
}

// shed lets go of the slowest peers that are too many.
func (f *fan) shed(now time.Time) {
	for f.active() > f.width {
		p := f.slowest(now)
		if p == nil {
			return
		}
		p.surplus = true
	}
}

// slowest returns the slowest measured peer in use, or any in use if none was measured, but no peer that alone has blocks left to it.
func (f *fan) slowest(now time.Time) (slowest *peerState) {
	for _, p := range f.order {
		if p.lanes == 0 || p.surplus || f.sole(p, now) {
			continue
		}
		if slowest == nil || p.speed > 0 && (slowest.speed == 0 || p.speed < slowest.speed) {
			slowest = p
		}
	}
	return slowest
}

// typical is how fast a lane is in the mean; 0: none was measured.
func (f *fan) typical() (mean float64) {
	measured := 0
	for _, p := range f.order {
		if p.speed > 0 {
			mean += p.speed
			measured++
		}
	}
	return mean / float64(max(measured, 1))
}
