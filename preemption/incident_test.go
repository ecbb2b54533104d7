package preemption

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"
	"testing/synctest"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// after makes a notice of the kind that was seen at noon and is due that long after; 0: no deadline known.
func after(source, id string, kind Kind, lead time.Duration) Notice {
	n := Notice{Source: source, ID: id, Kind: kind, SeenAt: noon, Reason: string(kind) + " by " + source}
	if lead != 0 {
		n.Deadline = noon.Add(lead)
	}
	return n
}

func withdrawn(n Notice) Notice { n.Withdrawn = true; return n }
func appointed(n Notice) Notice { n.Appointed = true; return n }

func TestSeverityOnlyRises(t *testing.T) {
	i := Open(after(SourceEC2, "r", KindRebalance, 0))
	for _, step := range []struct {
		join Notice
		kind Kind
		from string
	}{
		{after(SourceManual, "m", KindManual, 0), KindManual, SourceManual},
		{after(SourceEC2, "a", KindTerminate, time.Minute), KindTerminate, SourceEC2},
		{after(SourceOperator, "d", KindDecommission, time.Hour), KindTerminate, SourceEC2},
		{after(SourceSignal, "s", KindManual, 0), KindTerminate, SourceEC2},
	} {
		if !i.Join(step.join) {
			t.Errorf("%s by %s changed nothing", step.join.Kind, step.join.Source)
		}
		if i.Join(step.join) {
			t.Errorf("%s by %s changed something again", step.join.Kind, step.join.Source)
		}
		if i.Kind() != step.kind || i.Source() != step.from || i.Reason() != string(step.kind)+" by "+step.from {
			t.Errorf("got %s by %s (%s), want %s by %s", i.Kind(), i.Source(), i.Reason(), step.kind, step.from)
		}
	}
	if i.Join(after(SourceEC2, "a", KindStop, time.Minute)) || i.Kind() != KindTerminate {
		t.Errorf("a lighter word about the same notice made it %s", i.Kind())
	}
}

func TestDeadlineIsTheEarliestThatBinds(t *testing.T) {
	i := Open(after(SourceEC2, "r", KindRebalance, time.Second)) // advice binds nobody
	if got := i.Deadline(); !got.IsZero() {
		t.Errorf("got %v, want none", got)
	}
	for _, step := range []struct {
		join Notice
		want time.Duration
		tail time.Duration
	}{
		{after(SourceManual, "m", KindManual, 0), 0, 5 * time.Second},
		{after(SourceOperator, "d", KindDecommission, time.Hour), time.Hour, 5 * time.Second},
		{after(SourceEC2, "a", KindTerminate, 2*time.Minute), 2 * time.Minute, 10 * time.Second},
		{after(SourceManual, "m", KindManual, time.Minute), time.Minute, 5 * time.Second},
		{after(SourceManual, "m", KindManual, 0), time.Minute, 5 * time.Second},                           // forgets nothing
		{after(SourceManual, "m", KindManual, time.Minute-time.Second), time.Minute, 5 * time.Second},     // no news
		{withdrawn(after(SourceManual, "m", KindManual, time.Minute)), 2 * time.Minute, 10 * time.Second}, // the next one binds
		{after(SourceOperator, "d", KindDecommission, 90*time.Second), 90 * time.Second, 5 * time.Second}, // earlier
		{after(SourceOperator, "d", KindDecommission, 3*time.Hour), 2 * time.Minute, 10 * time.Second},    // more time was given
		{after(SourceOperator, "d", KindDecommission, 0), 2 * time.Minute, 10 * time.Second},              // and no limit is left
		{withdrawn(after(SourceEC2, "a", KindTerminate, 2*time.Minute)), 0, 5 * time.Second},
		{after(SourceEC2, "a", KindTerminate, 2*time.Minute), 2 * time.Minute, 10 * time.Second},
		{after(SourceOperator, "d", KindDecommission, 3*time.Hour), 2 * time.Minute, 10 * time.Second},
		{withdrawn(after(SourceEC2, "a", KindTerminate, 2*time.Minute)), 3 * time.Hour, 5 * time.Second}, // the far one is left
		{withdrawn(after(SourceOperator, "d", KindDecommission, time.Hour)), 0, 10 * time.Second},        // rebalance is left
	} {
		i.Join(step.join)
		var want time.Time
		if step.want != 0 {
			want = noon.Add(step.want)
		}
		if got := i.Deadline(); !got.Equal(want) {
			t.Errorf("after %+v: deadline %v, want %v", step.join, got, want)
		}
		if got := i.Tail(); got != step.tail {
			t.Errorf("after %+v: tail %v, want %v", step.join, got, step.tail)
		}
	}
}

// No deadline binds a node that only copies ahead, and yet its notice says when the maintenance begins. Where the node leaves without a
// deadline, that of the maintenance is not its.
func TestNoticeTellsWhenMaintenanceBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begins := Notice{Source: SourceEC2, ID: "e", Kind: KindMaintenance, Deadline: time.Now().Add(3 * time.Hour)}
		i := Open(begins)
		if got := i.Wire(StancePreCopy).GetRemaining(); got.AsDuration() != 3*time.Hour {
			t.Errorf("got %v left, want three hours", got)
		}
		i.Join(Notice{Source: SourceManual, ID: "m", Kind: KindManual})
		if got := i.Wire(StanceDrain).Remaining; got != nil {
			t.Errorf("got %v left for a node that leaves without a deadline, want none", got)
		}
	})
}

func TestWithdrawalOfOneOfTwoKeepsItOpen(t *testing.T) {
	action, advice := after(SourceEC2, "a", KindTerminate, 2*time.Minute), after(SourceEC2, "r", KindRebalance, 0)
	i := Open(advice)
	i.Join(action)
	if stanceOf(i) != StanceDrain || i.Withdrawn() {
		t.Errorf("stance %s, withdrawn %v, want drain, false", stanceOf(i), i.Withdrawn())
	}
	if !i.Join(withdrawn(action)) || i.Join(withdrawn(action)) {
		t.Error("a withdrawal should change something once")
	}
	if i.Withdrawn() || i.Kind() != KindRebalance || stanceOf(i) != StancePreCopy || !i.Deadline().IsZero() {
		t.Errorf("got %s, %s, deadline %v, withdrawn %v, want the advice alone", i.Kind(), stanceOf(i), i.Deadline(), i.Withdrawn())
	}
	i.Join(withdrawn(advice))
	if !i.Withdrawn() || stanceOf(i) != StanceIgnore || i.Kind() != KindTerminate || i.Source() != SourceEC2 {
		t.Errorf("got %s, %s, withdrawn %v, want it over, and still told what it was", i.Kind(), stanceOf(i), i.Withdrawn())
	}
	if i.Join(withdrawn(after(SourceManual, "m", KindManual, 0))) || len(i.Notices) != 2 {
		t.Error("withdrawing a notice that never came changed something")
	}
	again := action
	again.SeenAt, again.Deadline = noon.Add(time.Hour), noon.Add(2*time.Hour)
	if !i.Join(again) || i.Withdrawn() || !i.Deadline().Equal(again.Deadline) || !i.NoticedAt().Equal(noon) {
		t.Errorf("after it came back: %+v", i)
	}
}

// A node that leaves on an order hears that its cloud takes it sooner: its time counts from then, and its drain from the order.
func TestTheDrainIsAsOldAsTheFirstLeaving(t *testing.T) {
	i := Open(after(SourceManual, "m", KindManual, 0))
	i.leave(noon, 0)
	sooner := noon.Add(10 * time.Minute)
	i.Join(after(SourceEC2, "a", KindTerminate, 12*time.Minute))
	i.leave(sooner, 0)
	if left, first := i.LeftAt(), i.FirstLeftAt(); !left.Equal(sooner) || !first.Equal(noon) {
		t.Errorf("got %s, first %s, want %s, first %s", left, first, sooner, noon)
	}
}

func TestIncidentSurvivesJSON(t *testing.T) {
	i := Open(after(SourceEC2, "a", KindTerminate, 2*time.Minute))
	i.Join(after(SourceManual, "m", KindManual, 0))
	data, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	var got Incident
	if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, i) {
		t.Errorf("got %+v, %v, want %+v", got, err, i)
	}
}

func TestCopyOfAnIncidentStaysAsItWas(t *testing.T) {
	action := after(SourceEC2, "a", KindTerminate, 2*time.Minute)
	i := Open(action)
	for _, id := range []string{"x", "y"} { // so that there is room for one more behind them
		i.Join(after(SourceManual, id, KindManual, 0))
	}
	before, other := i, i
	i.Join(withdrawn(action))
	i.Join(after(SourceManual, "m", KindManual, 0))
	other.Join(after(SourceSignal, "s", KindManual, 0))
	if before.Kind() != KindTerminate || len(before.Notices) != 3 {
		t.Errorf("the copy changed: %+v", before)
	}
	before.Join(after(SourceOperator, "d", KindDecommission, 0))
	if i.Notices[3].ID != "m" || other.Notices[3].ID != "s" || before.Notices[3].ID != "d" {
		t.Errorf("copies write over each other: %+v, %+v, %+v", i, other, before)
	}
}

// A rehearsal gives way to a notice in earnest for which the node goes as far, and not to a lesser one. It shortens no deadline of that, and
// is not what the node leaves for.
func TestRehearsedUntilSomethingGoesAsFar(t *testing.T) {
	pretended := after(SourceRehearsal, "simulate", KindTerminate, time.Minute)
	i := Open(pretended)
	for _, step := range []struct {
		join     Notice
		want     bool
		source   string
		deadline time.Duration
	}{
		{after(SourceEC2, "r", KindRebalance, 0), true, SourceRehearsal, time.Minute},
		{after(SourceManual, "m", KindManual, time.Hour), false, SourceManual, time.Hour},
		{withdrawn(after(SourceManual, "m", KindManual, 0)), true, SourceRehearsal, time.Minute},
		{appointed(after(SourceEC2, "days", KindRetirement, 9*24*time.Hour)), true, SourceRehearsal, time.Minute},
		{withdrawn(after(SourceEC2, "days", KindRetirement, 0)), true, SourceRehearsal, time.Minute},
		{appointed(after(SourceEC2, "soon", KindRetirement, 2*time.Minute)), false, SourceEC2, 2 * time.Minute}, // it is time to leave before the rehearsal is over
		{withdrawn(after(SourceEC2, "soon", KindRetirement, 0)), true, SourceRehearsal, time.Minute},
		{withdrawn(pretended), false, SourceEC2, 0}, // the advice is left
		{withdrawn(after(SourceEC2, "r", KindRebalance, 0)), false, SourceManual, 0},
	} {
		i.Join(step.join)
		var want time.Time
		if step.deadline != 0 {
			want = noon.Add(step.deadline)
		}
		if i.Rehearsed() != step.want || i.Source() != step.source || !i.Deadline().Equal(want) {
			t.Errorf("after %+v: rehearsed %t, by %s until %v, want %t, by %s until %v", step.join, i.Rehearsed(), i.Source(), i.Deadline(), step.want, step.source, want)
		}
	}
}

func TestIncidentIDsAreRandom(t *testing.T) {
	a, b := Open(Notice{}), Open(Notice{})
	if form := regexp.MustCompile(`^inc-[0-9a-f]{12}$`); a.ID == b.ID || !form.MatchString(a.ID) {
		t.Errorf("got %s and %s", a.ID, b.ID)
	}
}

func TestStancesAreOrdered(t *testing.T) {
	for low, s := range stances() {
		for high, u := range stances() {
			if got := u.AtLeast(s); got != (high >= low) {
				t.Errorf("%s at least %s: %v", u, s, got)
			}
		}
	}
	if got := Policy(nil).Stance("explode"); got != StanceWatch {
		t.Errorf("a kind not known here gives %s, want watch", got)
	}
	if k, err := ParseKind("stop"); k != KindStop || err != nil {
		t.Errorf("got %s, %v", k, err)
	}
	if k, err := ParseKind("explode"); err == nil {
		t.Errorf("got %s", k)
	}
}

func stanceOf(i Incident) Stance {
	s, _ := i.Stance(time.Now(), 0)
	return s
}
