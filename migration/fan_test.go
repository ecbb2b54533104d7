package migration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func testFan(zone, pool string, peers ...Peer) *fan {
	f := newFan(zone, pool, map[string]*peerState{})
	f.roll = rand.New(rand.NewPCG(1, 2)).Float64
	f.hear("self", peers)
	return f
}

func somePeers(n int, zone, pool string) (all []Peer) {
	for i := range n {
		all = append(all, Peer{Node: fmt.Sprintf("%s-%s-%02d", zone, pool, i), Zone: zone, Pool: pool, RoomBytes: 1 << 40})
	}
	return all
}

// draw fills a fan and counts who was chosen, by pool.
func draw(f *fan, now time.Time) map[string]int {
	chosen := map[string]int{}
	for p := f.choose(now, 1<<30); p != nil; p = f.choose(now, 1<<30) {
		p.lanes++
		chosen[p.Pool]++
	}
	return chosen
}

// look has the fan let go of one peer and choose others, that many times.
func look(f *fan, now time.Time, times int) {
	for range times {
		f.review(now, 0)
		for _, p := range f.order {
			if p.surplus {
				p.lanes = 1
				f.ended(p, now)
			}
		}
		draw(f, now)
	}
}

// The machines beside a node that is taken away are likely to be taken away too.
func TestPeersOfTheOwnPoolComeLast(t *testing.T) {
	now := time.Now()
	counts := map[string]int{}
	for range 50 {
		f := testFan("z1", "big-spot", append(somePeers(10, "z1", "big-spot"), somePeers(10, "z2", "big-spot")...)...)
		for p := f.choose(now, 1); p != nil; p = f.choose(now, 1) {
			p.lanes++
			counts[p.Zone]++
		}
	}
	if counts["z2"] < 190 {
		t.Errorf("of 200 peers %d were of the other zone's pool, want nearly all", counts["z2"])
	}
	f := testFan("z1", "big-spot", somePeers(10, "z1", "big-spot")...)
	if got := draw(f, now)["big-spot"]; got == 0 {
		t.Error("no peer was chosen where all are of the node's own pool: it is a penalty and no ban")
	}
}

// A pool whose machines disappear from the list gets no more blocks while there is another pool.
func TestPoolThatIsBeingTakenAwayIsLeft(t *testing.T) {
	now := time.Now()
	a, b := somePeers(10, "z2", "a"), somePeers(10, "z3", "b")
	f := testFan("z1", "c", append(a, b...)...)
	draw(f, now)
	f.hear("self", append(a[3:], b...))
	look(f, now, 5)
	for _, p := range f.order {
		if p.Pool == "a" && p.lanes > 0 {
			t.Errorf("%s is still sent to", p.Node)
		}
	}
	if f.active() != leastWidth {
		t.Errorf("%d peers are sent to, want %d", f.active(), leastWidth)
	}
}

// A peer that cannot be taken away is preferred.
func TestOnDemandPeersComeFirst(t *testing.T) {
	f := testFan("z1", "x", append(somePeers(16, "z2", "a-spot"), somePeers(16, "z3", "a-on-demand")...)...)
	if got := draw(f, time.Now()); got["a-on-demand"] < leastWidth-1 {
		t.Errorf("got %v, want on-demand machines first", got)
	}
}

// advise marks peers as advised to go.
func advise(peers []Peer) []Peer {
	for i := range peers {
		peers[i].Advised = true
	}
	return peers
}

// A peer that is advised to go gets nothing while another peer takes blocks, and everything once no other does. It is let go again when
// another takes blocks.
func TestAdvisedPeersTakeWhatNobodyElseDoes(t *testing.T) {
	now := time.Now()
	well, last := somePeers(2, "z2", "a"), advise(somePeers(8, "z3", ""))
	f := testFan("z1", "c", append(last, well...)...) // with unknown pools: else these would count as being taken away
	if got := draw(f, now); got["a"] != 2 || got[""] != 0 {
		t.Fatalf("got %v, want those alone that are not advised", got)
	}
	for range failedForAdvised {
		for _, p := range f.order {
			if p.Pool == "a" {
				p.failed(now, 0)
				p.lanes = 0
			}
		}
	}
	if got := draw(f, now); got[""] != leastWidth-1 {
		t.Fatalf("got %v, want all places but one taken by those that are advised", got)
	}
	now = now.Add(backOffMost)
	if got := draw(f, now); got["a"] != 1 {
		t.Fatalf("got %v, want the last place for one that may take something again", got)
	}
	for _, p := range f.order {
		if p.Pool == "a" {
			p.failures, p.open = 0, 1
		}
	}
	look(f, now, leastWidth)
	for _, p := range f.order {
		if p.Advised && p.lanes > 0 {
			t.Errorf("%s is still sent to", p.Node)
		}
	}
}

// Many nodes leave at once, and the peers that are not advised serve all of them, too slowly for what is left: advised peers help. If those
// peers serve this node alone, more peers would not make it faster.
func TestAdvisedPeersHelpWhereOthersAreCrowded(t *testing.T) {
	for _, crowded := range []bool{true, false} {
		now := time.Now()
		f := testFan("z1", "c", append(advise(somePeers(8, "z3", "")), somePeers(1, "z2", "a")...)...)
		f.need = 1e6
		draw(f, now)
		for _, p := range f.order {
			p.shared, p.open = crowded && p.lanes > 0, p.lanes
		}
		f.review(now, 0)
		f.review(now.Add(time.Second), 1e6-1)
		now = now.Add(2 * time.Second)
		if got := draw(f, now); (got[""] > 0) != crowded {
			t.Errorf("crowded %t: got %v", crowded, got)
		}
		f.need = 0
		f.review(now, 1e6)
		if slices.ContainsFunc(f.order, func(p *peerState) bool { return p.Advised && p.surplus }) {
			t.Errorf("crowded %t: one who helps is let go of", crowded)
		}
	}
}

// A peer that was sent nothing, because other peers took all blocks, is not silent.
func TestPeerForWhichThereWasNothingTakes(t *testing.T) {
	now := time.Now()
	f := testFan("z1", "c", somePeers(1, "z2", "a")...)
	p := f.choose(now, 1)
	p.lanes = 1
	p.try(now)
	now = now.Add(time.Minute)
	if p.takes(now) {
		t.Error("one that has taken nothing for a minute counts as one that does")
	}
	f.ended(p, now)
	if !p.takes(now) {
		t.Error("one that is not tried counts as one that takes nothing")
	}
}

// Advised peers that are the only ones are used like any.
func TestAdvisedPeersAloneAreUsedLikeAny(t *testing.T) {
	f := testFan("z1", "c", advise(somePeers(8, "z3", ""))...)
	if got := draw(f, time.Now()); got[""] != leastWidth {
		t.Errorf("got %v, want %d", got, leastWidth)
	}
}

// More peers are sent to while that makes the drain faster, and let go again when it does not.
func TestFanGrowsWhileItGains(t *testing.T) {
	now := time.Now()
	f := testFan("", "", somePeers(30, "", "")...)
	draw(f, now)
	sent := int64(1)
	second := func(rate int64) {
		now, sent = now.Add(time.Second), sent+rate
		f.review(now, sent)
		draw(f, now)
	}
	f.review(now, sent)
	for i, rate := range []int64{400, 600, 800} {
		second(rate)
		if want := leastWidth + widthStep*(i+1); f.width != want {
			t.Fatalf("width %d after %d bytes a second, want %d", f.width, rate, want)
		}
	}
	f.peers["--07"].speed = 5
	second(810)
	if f.width != leastWidth+2*widthStep || f.active() != f.width {
		t.Errorf("width %d, %d sent to: want the last two to be let go, which brought nothing", f.width, f.active())
	}
	second(810)
	if f.width != leastWidth+2*widthStep {
		t.Errorf("width %d: want it held for %v", f.width, widthHold)
	}
}

// Several nodes that leave at once share the peers: none keeps a peer for blocks of little worth while others find none.
func TestPeersAreTakenInTurnsWhereOthersWantThemToo(t *testing.T) {
	now := time.Now()
	f := testFan("", "", somePeers(12, "", "")...)
	draw(f, now)
	for i, p := range f.order {
		p.speed = float64(100 + i)
	}
	review := func() (letGo []string) {
		now = now.Add(widthPace)
		f.review(now, f.sent+1)
		for _, p := range f.order {
			if p.surplus {
				letGo = append(letGo, p.Node)
			}
		}
		return letGo
	}
	f.review(now, 1)
	if got := review(); len(got) > 0 {
		t.Errorf("%v were let go where nobody waits", got)
	}
	var slowest *peerState
	for _, p := range f.order {
		if p.lanes > 0 && slowest == nil {
			slowest = p
		} else if p.lanes > 0 {
			p.shared = true
		}
	}
	if got := review(); !slices.Equal(got, []string{slowest.Node}) {
		t.Errorf("%v were let go, want the slowest, %s", got, slowest.Node)
	}
	slowest.lanes = 1
	f.ended(slowest, now)
	if draw(f, now); slowest.lanes > 0 || f.active() != f.width {
		t.Errorf("%d lanes to %s, %d peers of %d: want another in its place", slowest.lanes, slowest.Node, f.active(), f.width)
	}
	f = testFan("", "", somePeers(leastWidth, "", "")...)
	draw(f, now)
	for _, p := range f.order {
		p.speed, p.shared = 1, true
	}
	f.review(now, 1)
	if got := review(); len(got) > 0 {
		t.Errorf("%v were let go where there is no other", got)
	}
}

func TestSlowAndFullPeersAreSeldomChosen(t *testing.T) {
	f := testFan("", "", somePeers(3, "", "")...)
	f.peers["--00"].speed, f.peers["--01"].speed = 1e9, 1e6
	f.peers["--02"].RoomBytes = 1 << 10
	mean := f.typical()
	fast, slow, full := f.weight(f.peers["--00"], 1<<30, mean), f.weight(f.peers["--01"], 1<<30, mean), f.weight(f.peers["--02"], 1<<30, mean)
	if fast < 100*slow || fast < 100*full {
		t.Errorf("weights: fast %g, slow %g, full %g", fast, slow, full)
	}
}

// A peer may have room only where blocks land in place. A node without such a store seldom chooses it.
func TestFullVaultsAreSeldomChosen(t *testing.T) {
	f := testFan("", "", somePeers(2, "", "")...)
	f.peers["--00"].VaultBytes, f.peers["--00"].Places = new(int64(1<<10)), []string{"spark"}
	for stores, least := range map[string]float64{"cache": 100, "spark": 1, "cache spark": 1} {
		f.stores = strings.Fields(stores)
		if full, other := f.weight(f.peers["--00"], 1<<30, 0), f.weight(f.peers["--01"], 1<<30, 0); other < least*full || least == 1 && other != full {
			t.Errorf("%s: weights: full vault %g, other %g, want %g times as much", stores, full, other, least)
		}
	}
}

// A peer that takes blocks is not let go for one that was tried and took none, whatever its pool, and however many nodes send to it.
func TestPeerThatTakesBlocksIsNotLeftForOneThatFailed(t *testing.T) {
	for name, pool := range map[string]string{"of the own pool": "own", "shared": "other"} {
		t.Run(name, func(t *testing.T) {
			now, own := time.Now(), somePeers(1, "z", pool)
			f := testFan("z", "own", append(somePeers(8, "y", "other"), own...)...)
			alive, in, sent := f.peers[own[0].Node], 0, int64(0)
			alive.shared = pool != "own"
			for range 240 {
				now = now.Add(500 * time.Millisecond)
				if alive.lanes > 0 {
					in, sent, alive.speed, alive.open = in+1, sent+100, 200, 1
				}
				f.review(now, sent)
				for _, p := range f.order {
					if p != alive && p.lanes > 0 && !p.surplus {
						p.failed(now, 0)
					}
					if p.lanes > 0 && (p.surplus || p != alive && f.spare(now)) {
						p.lanes = 1
						f.ended(p, now)
					}
				}
				draw(f, now)
			}
			if in < 200 {
				t.Errorf("the one that takes blocks is sent to in %d looks of 240", in)
			}
		})
	}
}
