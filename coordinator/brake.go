package coordinator

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Loss bounds how many nodes that fell silent without a notice may be declared LOST. Mass preemption is ordinary, and comes with notices;
// mass silence is more often a broken network or this coordinator. Each bound is in percent, and 100 turns it off.
type Loss struct {
	BudgetPercent int `yaml:"budget_percent"` // of the fleet that may be LOST within a minute
	FleetPercent  int `yaml:"fleet_percent"`  // of the fleet suspect at once: from then on no node is LOST
	PoolPercent   int `yaml:"pool_percent"`   // likewise of a pool or a zone, for its nodes
}

const (
	noBrake = 100

	// fewSilent is how many silent nodes no brake holds: in a fleet of three, a dead machine must be LOST when its lease ends.
	fewSilent = 2

	budgetSpan = time.Minute
)

// defaultLoss is between what Kubernetes does (a zone is braked at 55 % unready, with three nodes or more) and Eureka
// (15 % of the fleet), and counts by pool because that is how clouds take machines.
func defaultLoss() Loss { return Loss{BudgetPercent: 2, FleetPercent: 10, PoolPercent: 20} }

func (l Loss) check(report func(key string, value any, bound, remedy string)) {
	config.CheckBetween(report, "loss.budget_percent", l.BudgetPercent, 1, noBrake)
	config.CheckBetween(report, "loss.fleet_percent", l.FleetPercent, 1, noBrake)
	config.CheckBetween(report, "loss.pool_percent", l.PoolPercent, 1, noBrake)
}

// share is percent of n, rounded up, and more than fewSilent in any case.
func share(percent, n int) int {
	if percent >= noBrake {
		return math.MaxInt
	}
	return max(fewSilent+1, (n*percent+99)/100)
}

// scope is a part of the fleet that a brake may hold: the whole, a pool or a zone.
type scope struct{ kind, name string }

var wholeFleet = scope{kind: "fleet"}

func (s scope) String() string {
	if s.name == "" {
		return s.kind
	}
	return s.kind + " " + s.name
}

// part are the nodes of one pool and one zone.
type part struct{ pool, zone string }

// scopes are the scopes that the part belongs to. A node without a pool is in no pool's scope, and likewise with zones.
func (p part) scopes() []scope {
	all := []scope{wholeFleet, {"pool", p.pool}, {"zone", p.zone}}
	return slices.DeleteFunc(all, func(sc scope) bool { return sc != wholeFleet && sc.name == "" })
}

// byScope adds up the parts by scope.
func byScope(parts map[part]int) map[scope]int {
	sums := map[scope]int{}
	for p, n := range parts {
		for _, sc := range p.scopes() {
			sums[sc] += n
		}
	}
	return sums
}

// suspect is a silent node that may be LOST for it.
type suspect struct {
	node      string
	of        part
	since     time.Time // its last sign of life
	overdue   bool      // its lease has run out
	announced bool      // it is under a notice or an order to leave: its silence is no surprise
}

// hold is a brake that holds.
type hold struct {
	since    time.Time
	calm     time.Time // since when there are too few suspects to begin it; zero: there are enough
	suspects int
	nodes    int
}

// braking is a brake that began or ceased to hold.
type braking struct {
	scope scope
	hold  hold
	holds bool
}

// brake decides which silent nodes may be LOST. It is pure: it reads no clock, and knows only its arguments.
type brake struct {
	limits   Loss
	calm     time.Duration // how long a hold lasts once there are too few suspects: nodes that were cut off come back in that time
	spent    []spending    // nodes that were LOST unannounced within the last budgetSpan, oldest first
	holds    map[scope]*hold
	released map[string]bool // suspects that an operator has confirmed as lost
}

// spending is a node that was LOST unannounced, and when.
type spending struct {
	node string
	at   time.Time
}

func newBrake(limits Loss, calm time.Duration) *brake {
	return &brake{limits: limits, calm: calm, holds: map[scope]*hold{}, released: map[string]bool{}}
}

// clear forgets all, for a new term as the leader.
func (b *brake) clear() { b.spent, b.holds, b.released = nil, map[scope]*hold{}, map[string]bool{} }

// judge returns the suspects that are LOST now, the longest silent first, and the brakes that began or ceased to hold. count, which is
// only called when it matters, says how many nodes there should be in each scope: suspects count, leaving nodes do not.
func (b *brake) judge(now time.Time, suspects []suspect, count func() map[scope]int) (lost []string, news []braking) {
	b.forget(suspects)
	var nodes map[scope]int
	if len(suspects) > fewSilent || len(b.holds)+len(b.spent) > 0 { // else a fleet of any size may lose so few
		nodes = count()
	}
	news = b.press(now, b.count(suspects), nodes)
	for len(b.spent) > 0 && now.Sub(b.spent[0].at) >= budgetSpan {
		b.spent = b.spent[1:]
	}
	paid := map[string]bool{} // LOST already, but that may not have been written to the log
	for _, s := range b.spent {
		paid[s.node] = true
	}
	left := share(b.limits.BudgetPercent, nodes[wholeFleet]) - len(b.spent)
	var due []suspect
	for _, s := range suspects {
		switch {
		case !s.overdue:
		case s.announced || b.released[s.node] || paid[s.node] && !b.held(s):
			lost = append(lost, s.node)
		case left > 0 && !b.held(s):
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(x, y suspect) int { return cmp.Or(x.since.Compare(y.since), cmp.Compare(x.node, y.node)) })
	for _, s := range due[:min(len(due), max(left, 0))] {
		lost = append(lost, s.node)
		b.spent = append(b.spent, spending{s.node, now})
	}
	return lost, news
}

// count is how many suspects each scope has, without the announced and the released ones.
func (b *brake) count(suspects []suspect) map[scope]int {
	parts := map[part]int{}
	for _, s := range suspects {
		if !s.announced && !b.released[s.node] {
			parts[s.of]++
		}
	}
	return byScope(parts)
}

// press begins and ends holds, and returns those changes.
func (b *brake) press(now time.Time, counts, nodes map[scope]int) (news []braking) {
	for sc, n := range counts {
		if b.holds[sc] == nil && n >= b.most(sc, nodes[sc]) {
			b.holds[sc] = &hold{since: now, suspects: n, nodes: nodes[sc]}
			news = append(news, braking{sc, *b.holds[sc], true})
		}
	}
	for sc, h := range b.holds {
		h.suspects, h.nodes = counts[sc], nodes[sc]
		switch {
		case h.suspects >= b.most(sc, h.nodes):
			h.calm = time.Time{}
			continue
		case h.calm.IsZero():
			h.calm = now
		}
		if h.suspects == 0 || now.Sub(h.calm) >= b.calm {
			delete(b.holds, sc)
			news = append(news, braking{sc, *h, false})
		}
	}
	slices.SortFunc(news, func(x, y braking) int { return compareScopes(x.scope, y.scope) })
	return news
}

// most is how many suspects in a scope make its brake hold.
func (b *brake) most(sc scope, nodes int) int {
	if sc == wholeFleet {
		return share(b.limits.FleetPercent, nodes)
	}
	return share(b.limits.PoolPercent, nodes)
}

func (b *brake) held(s suspect) bool {
	return !s.announced && len(b.holds) > 0 &&
		(b.holds[wholeFleet] != nil || b.holds[scope{"pool", s.of.pool}] != nil || b.holds[scope{"zone", s.of.zone}] != nil)
}

// behind are the nodes that would be LOST now if no brake held them.
func (b *brake) behind(suspects []suspect) (lost []string) {
	for _, s := range suspects {
		if s.overdue && b.held(s) {
			lost = append(lost, s.node)
		}
	}
	slices.Sort(lost)
	return lost
}

// release frees the suspects that brakes hold: they are LOST when their leases end, unless they come back.
func (b *brake) release(suspects []suspect) {
	for _, s := range suspects {
		if b.held(s) {
			b.released[s.node] = true
		}
	}
	clear(b.holds)
}

// forget drops the release of nodes that came back, or are lost.
func (b *brake) forget(suspects []suspect) {
	if len(b.released) == 0 {
		return
	}
	still := make(map[string]bool, len(b.released))
	for _, s := range suspects {
		if b.released[s.node] {
			still[s.node] = true
		}
	}
	b.released = still
}

func compareScopes(x, y scope) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.name, y.name))
}
