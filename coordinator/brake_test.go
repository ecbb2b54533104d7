package coordinator

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShare(t *testing.T) {
	for _, c := range []struct{ percent, n, want int }{
		{10, 0, 3}, {10, 1, 3}, {10, 10, 3}, {10, 30, 3}, {10, 31, 4}, {10, 100, 10}, {10, 101, 11}, {20, 16, 4},
		{2, 10_000, 200}, {1, 10_000, 100}, {100, 10, math.MaxInt},
	} {
		if got := share(c.percent, c.n); got != c.want {
			t.Errorf("%d %% of %d: got %d, want %d", c.percent, c.n, got, c.want)
		}
	}
}

// ward is a brake with a fleet of numbered nodes in pools, and its own clock.
type ward struct {
	*testing.T
	brake  *brake
	now    time.Time
	nodes  map[scope]int
	silent map[string]suspect
}

const wardLease = 30 * time.Second

func newWard(t *testing.T, limits Loss, pools ...int) *ward {
	w := &ward{T: t, brake: newBrake(limits, wardLease), now: t0, nodes: map[scope]int{}, silent: map[string]suspect{}}
	for i, n := range pools {
		w.nodes[scope{"pool", fmt.Sprint("p", i)}] = n
		w.nodes[wholeFleet] += n
	}
	return w
}

// falls makes nodes of a pool silent, as of half a lease ago.
func (w *ward) falls(pool, from, to int, announced bool) {
	for i := from; i < to; i++ {
		name := fmt.Sprintf("p%d-%03d", pool, i)
		w.silent[name] = suspect{node: name, of: part{pool: fmt.Sprint("p", pool)}, since: w.now.Add(-wardLease / 2), announced: announced}
	}
}

func (w *ward) returns(pool, from, to int) {
	for i := from; i < to; i++ {
		delete(w.silent, fmt.Sprintf("p%d-%03d", pool, i))
	}
}

// pass lets seconds pass, and says which nodes were lost meanwhile and what the brakes did.
func (w *ward) pass(seconds int) (lost []string, told string) {
	var words []string
	for range seconds {
		w.now = w.now.Add(time.Second)
		gone, news := w.brake.judge(w.now, w.suspects(), func() map[scope]int { return w.nodes })
		for _, name := range gone {
			for _, sc := range w.silent[name].of.scopes() {
				w.nodes[sc]--
			}
			delete(w.silent, name)
		}
		lost = append(lost, gone...)
		for _, b := range news {
			words = append(words, fmt.Sprintf("%s %t at %d of %d", b.scope, b.holds, b.hold.suspects, b.hold.nodes))
		}
	}
	return lost, strings.Join(words, "; ")
}

func (w *ward) suspects() (all []suspect) {
	for _, s := range w.silent {
		s.overdue = w.now.Sub(s.since) > wardLease
		all = append(all, s)
	}
	return all
}

func (w *ward) want(seconds, lost int, told string) {
	w.Helper()
	got, words := w.pass(seconds)
	if len(got) != lost || words != told {
		w.Errorf("%ds: got %d lost (%v) and %q, want %d and %q", seconds, len(got), got, words, lost, told)
	}
}

func TestFewSilentAreLostByTheirLease(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 10, 1000} {
		for silent := 1; silent <= min(n, fewSilent); silent++ {
			w := newWard(t, defaultLoss(), n)
			w.falls(0, 0, silent, false)
			w.want(15, 0, "")
			w.want(1, silent, "")
		}
	}
}

func TestBrakeOfTheFleet(t *testing.T) {
	w := newWard(t, defaultLoss(), 100, 100, 100)
	for pool := range 3 {
		w.falls(pool, 0, 10, false)
	}
	w.want(600, 0, "fleet true at 30 of 300")
	w.returns(0, 0, 1)
	w.want(29, 0, "") // too few for a brake, and none lost yet: more may fall silent
	w.falls(0, 0, 1, false)
	w.want(600, 0, "")
	w.returns(0, 0, 10)
	w.want(30, 0, "")
	w.want(1, 6, "fleet false at 20 of 300") // 2 % of 300
	w.want(59, 0, "")
	w.want(1, 6, "")
	w.want(120, 8, "")
}

func TestBrakeEndsWithTheLastSuspect(t *testing.T) {
	w := newWard(t, defaultLoss(), 10)
	w.falls(0, 0, 10, false)
	w.want(60, 0, "fleet true at 10 of 10; pool p0 true at 10 of 10")
	w.returns(0, 0, 10)
	w.want(1, 0, "fleet false at 0 of 10; pool p0 false at 0 of 10")
}

func TestBrakeOfAPoolLeavesTheOthersAlone(t *testing.T) {
	w := newWard(t, defaultLoss(), 20, 480)
	w.falls(0, 0, 4, false)
	w.falls(1, 0, 2, false)
	got, told := w.pass(60)
	if want := []string{"p1-000", "p1-001"}; !slices.Equal(got, want) || told != "pool p0 true at 4 of 20" {
		t.Errorf("got %v lost and %q, want %v", got, told, want)
	}
}

func TestAnnouncedNeitherCountNorWait(t *testing.T) {
	w := newWard(t, defaultLoss(), 70)
	w.falls(0, 0, 30, true)
	w.want(15, 0, "")
	w.want(1, 30, "")
	w.falls(0, 30, 33, true)
	w.falls(0, 33, 60, false)
	w.want(16, 3, "fleet true at 27 of 40; pool p0 true at 27 of 40")
}

func TestLossesKeepToTheirBudget(t *testing.T) {
	off := Loss{BudgetPercent: 2, FleetPercent: noBrake, PoolPercent: noBrake}
	w := newWard(t, off, 1000)
	w.falls(0, 0, 100, false)
	w.want(16, 20, "") // 2 % of 1000
	w.want(59, 0, "")
	w.want(1, 20, "")  // of 980
	w.want(60, 20, "") // 19.2
	w = newWard(t, Loss{BudgetPercent: noBrake, FleetPercent: noBrake, PoolPercent: noBrake}, 1000)
	w.falls(0, 0, 1000, false)
	w.want(16, 1000, "")
}

func TestTheLongestSilentAreLostFirst(t *testing.T) {
	w := newWard(t, Loss{BudgetPercent: 1, FleetPercent: noBrake, PoolPercent: noBrake}, 100)
	w.falls(0, 50, 52, false)
	w.now = w.now.Add(time.Second)
	w.falls(0, 0, 50, false)
	got, _ := w.pass(16)
	if want := []string{"p0-050", "p0-051", "p0-000"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReleaseIsOfThoseWhoAreHeld(t *testing.T) {
	w := newWard(t, defaultLoss(), 100)
	w.falls(0, 0, 30, false)
	w.want(14, 0, "fleet true at 30 of 100; pool p0 true at 30 of 100")
	w.falls(0, 30, 40, false)
	w.want(2, 0, "")
	if got := w.brake.behind(w.suspects()); len(got) != 30 {
		t.Errorf("got %d overdue behind the brake, want 30", len(got))
	}
	w.brake.release(w.suspects())
	w.want(1, 30, "")
	w.returns(0, 30, 32)
	w.want(15, 8, "")
	w.falls(0, 40, 60, false) // not of those: a brake of its own
	w.want(60, 0, "fleet true at 20 of 62; pool p0 true at 20 of 62")
	w.falls(0, 30, 32, false) // released once, and back since
	w.want(60, 0, "")
	if len(w.brake.released) != 0 {
		t.Errorf("got %v released still, want none", w.brake.released)
	}
}

// Whatever happens, no node is lost before its lease ends, and the unannounced losses of a minute stay within the budget.
func FuzzBrake(f *testing.F) {
	f.Add([]byte{1, 0, 30, 60, 2, 0, 10, 40})
	f.Fuzz(func(t *testing.T, acts []byte) {
		w := newWard(t, defaultLoss(), 50, 5)
		var losses []time.Time
		for i := 0; i+3 < len(acts) && i < 80; i += 4 {
			pool, a, b := int(acts[i]>>2&1), int(acts[i+1]%50), int(acts[i+2]%50)
			switch acts[i] % 4 {
			case 0, 1:
				w.falls(pool, a, b, acts[i]%4 == 1)
			case 2:
				w.returns(pool, a, b)
			case 3:
				w.brake.release(w.suspects())
			}
			for range acts[i+3] {
				w.now = w.now.Add(time.Second)
				released := w.brake.released
				lost, _ := w.brake.judge(w.now, w.suspects(), func() map[scope]int { return w.nodes })
				for _, name := range lost {
					s := w.silent[name]
					if w.now.Sub(s.since) <= wardLease {
						t.Fatalf("%s is lost after %s", name, w.now.Sub(s.since))
					}
					if !s.announced && !released[name] {
						losses = append(losses, w.now)
					}
					delete(w.silent, name)
				}
				recent := 0
				for _, at := range losses {
					if w.now.Sub(at) < budgetSpan {
						recent++
					}
				}
				if recent > 3 {
					t.Fatalf("%d were lost in a minute, want 3 at most", recent)
				}
			}
		}
	})
}

// The log cannot be written when nodes are LOST: they are LOST once it can, for the budget that they have cost already.
func TestLossThatIsNotWrittenCostsOnce(t *testing.T) {
	w := newWard(t, defaultLoss(), 10)
	w.falls(0, 0, 2, false)
	w.now = w.now.Add(wardLease)
	for range 20 {
		w.now = w.now.Add(time.Second)
		if lost, _ := w.brake.judge(w.now, w.suspects(), func() map[scope]int { return w.nodes }); len(lost) != 2 {
			t.Fatalf("got %q lost after %s, want both", lost, w.now.Sub(t0))
		}
	}
	w.falls(0, 2, 3, false)
	w.now = w.now.Add(wardLease)
	if lost, _ := w.brake.judge(w.now, w.suspects(), func() map[scope]int { return w.nodes }); len(lost) != 0 {
		t.Errorf("got %q lost, want all held with the third silent node", lost)
	}
}
