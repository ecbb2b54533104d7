package coordinator

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Loss bounds how many nodes that fell silent without a word may be LOST. Mass preemption is ordinary, and announced; mass
// silence is more often a network or this coordinator. Each is in percent, and 100 turns it off.
type Loss struct {
	BudgetPercent int `yaml:"budget_percent"` // of the fleet, in a minute
	FleetPercent  int `yaml:"fleet_percent"`  // of the fleet, suspects at once: then nobody is lost
	PoolPercent   int `yaml:"pool_percent"`   // of a pool or a zone, likewise
}

const (
	noBrake = 100

	// fewSilent is what no brake holds: a machine of three that is dead must be LOST by its lease.
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

// share is how many of n a percentage is, and more than fewSilent in any case.
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

// part is what nodes have in common that share a pool and a zone.
type part struct{ pool, zone string }

// scopes are those that the part belongs to. A node without a pool is in none.
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

// suspect is a node that is silent, and would be LOST for it.
type suspect struct {
	node      string
	of        part
	since     time.Time // its last sign of life
	overdue   bool      // its lease has run out
	announced bool      // it is under a notice, or was sent away: its silence is no surprise
}

// hold is a brake that holds.
type hold struct {
	since    time.Time
	calm     time.Time // since when there are too few suspects for it; zero: there are not
	suspects int
	nodes    int
}

// braking is a brake that began or ceased to hold.
type braking struct {
	scope scope
	hold  hold
	holds bool
}

// brake decides which of the silent may be given up. It reads no clock and knows nothing that it is not told.
type brake struct {
	limits   Loss
	calm     time.Duration // how long it goes on to hold once there are too few suspects: who was cut off comes back in that
	spent    []time.Time   // when somebody was lost unannounced, within the last budgetSpan, oldest first
	holds    map[scope]*hold
	released map[string]bool // suspects that an operator said are lost indeed
}

func newBrake(limits Loss, calm time.Duration) *brake {
	return &brake{limits: limits, calm: calm, holds: map[scope]*hold{}, released: map[string]bool{}}
}

// clear forgets all, as a new process would.
func (b *brake) clear() { b.spent, b.holds, b.released = nil, map[scope]*hold{}, map[string]bool{} }

// judge says who of the suspects is lost now, the longest silent first, and which brakes began or ceased to hold. count is
// asked, when that matters, how many nodes there should be in each scope, suspects included and leavers not.
func (b *brake) judge(now time.Time, suspects []suspect, count func() map[scope]int) (lost []string, news []braking) {
	b.forget(suspects)
	var nodes map[scope]int
	if len(suspects) > fewSilent || len(b.holds)+len(b.spent) > 0 { // else whatever there is allows for so few
		nodes = count()
	}
	news = b.press(now, b.count(suspects), nodes)
	for len(b.spent) > 0 && now.Sub(b.spent[0]) >= budgetSpan {
		b.spent = b.spent[1:]
	}
	left := share(b.limits.BudgetPercent, nodes[wholeFleet]) - len(b.spent)
	var due []suspect
	for _, s := range suspects {
		switch {
		case !s.overdue:
		case s.announced || b.released[s.node]:
			lost = append(lost, s.node)
		case left > 0 && !b.held(s):
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(x, y suspect) int { return cmp.Or(x.since.Compare(y.since), cmp.Compare(x.node, y.node)) })
	for _, s := range due[:min(len(due), max(left, 0))] {
		lost = append(lost, s.node)
		b.spent = append(b.spent, now)
	}
	return lost, news
}

// count is how many suspects a scope has whose silence is a surprise.
func (b *brake) count(suspects []suspect) map[scope]int {
	parts := map[part]int{}
	for _, s := range suspects {
		if !s.announced && !b.released[s.node] {
			parts[s.of]++
		}
	}
	return byScope(parts)
}

// press begins and ends holds.
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

// most is how many suspects make a brake hold.
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

// behind are those whom brakes hold that would be lost now.
func (b *brake) behind(suspects []suspect) (lost []string) {
	for _, s := range suspects {
		if s.overdue && b.held(s) {
			lost = append(lost, s.node)
		}
	}
	slices.Sort(lost)
	return lost
}

// release lets go of whoever is held: they are lost when their leases are over, unless they come back.
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
