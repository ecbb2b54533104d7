package preemption

import (
	"testing"
	"time"
)

// How far a node goes at an instant before an appointment, row by row.
func TestStanceOverTime(t *testing.T) {
	for _, row := range []struct {
		name     string
		kind     Kind
		estimate time.Duration
		before   time.Duration // the appointment
		want     Stance
		changes  time.Duration // before the appointment; 0: never
	}{
		{"retirement, days ahead", KindRetirement, time.Minute, 48 * time.Hour, StancePreCopy, 3 * time.Minute},
		{"retirement, time to go", KindRetirement, time.Minute, 3 * time.Minute, StanceDrain, 0},
		{"never later than two minutes before", KindRetirement, 0, 2*time.Minute + 1, StancePreCopy, 2 * time.Minute},
		{"maintenance is only copied for", KindMaintenance, time.Hour, time.Minute, StancePreCopy, 0},
		{"a reboot far ahead", KindReboot, 0, time.Hour, StanceIgnore, 2 * time.Minute},
		{"a reboot at hand", KindReboot, 0, time.Minute, StanceWatch, 0},
		{"a freeze at hand", KindFreeze, 0, time.Second, StanceIgnore, 0},
	} {
		n := after(SourceAzure, "e", row.kind, row.before)
		n.Appointed = true
		i := Open(n)
		got, changes := i.Stance(noon, row.estimate)
		if got != row.want || changes.IsZero() != (row.changes == 0) || !changes.IsZero() && n.Deadline.Sub(changes) != row.changes {
			t.Errorf("%s: got %s until %s before, want %s until %s", row.name, got, n.Deadline.Sub(changes), row.want, row.changes)
		}
	}
}

// A node leaves at once for a notice that asks for it, whatever appointments stand besides.
func TestStanceIsThatOfWhoGoesFurthest(t *testing.T) {
	appointed := after(SourceEC2, "events/maintenance/scheduled/e", KindRetirement, 48*time.Hour)
	appointed.Appointed = true
	i := Open(appointed)
	i.Join(after(SourceEC2, "spot/instance-action", KindTerminate, 2*time.Minute))
	if s, changes := i.Stance(noon, 0); s != StanceDrain {
		t.Errorf("got %s until %v, want drain", s, changes)
	}
	if got := i.Deadline().Sub(noon); got != 2*time.Minute {
		t.Errorf("got a deadline in %s, want that of the one that comes first", got)
	}
}

// A cloud's notice that came to nothing is over some time after its deadline, a rehearsal at its deadline, and what people
// say never.
func TestOutlived(t *testing.T) {
	for _, row := range []struct {
		source string
		kind   Kind
		lead   time.Duration
		want   time.Duration // 0: never
	}{
		{SourceEC2, KindTerminate, time.Minute, time.Minute + outliveAfter},
		{SourceAzure, KindReboot, time.Minute, time.Minute + outliveAfter},
		{SourceRehearsal, KindTerminate, time.Minute, time.Minute},
		{SourceManual, KindManual, time.Minute, 0},
		{SourceOperator, KindDecommission, 0, 0},
		{SourceEC2, KindRebalance, 0, 0},
	} {
		i := Open(after(row.source, "x", row.kind, row.lead))
		switch got := i.OutlivedAt(); {
		case got.IsZero() != (row.want == 0), row.want != 0 && got.Sub(noon) != row.want:
			t.Errorf("%s by %s: got %v, want %s after noon", row.kind, row.source, got, row.want)
		}
	}
	both := Open(after(SourceRehearsal, "x", KindTerminate, time.Minute))
	both.Join(after(SourceManual, "m", KindManual, 0))
	if got := both.OutlivedAt(); !got.IsZero() {
		t.Errorf("an operator's word ended with the rehearsal, at %v", got)
	}
	advised := Open(after(SourceRehearsal, "x", KindTerminate, time.Minute))
	advised.Join(after(SourceEC2, "m", KindMaintenance, time.Hour))
	if got := advised.OutlivedAt(); got.Sub(noon) != time.Minute {
		t.Errorf("a rehearsal lasted as long as the appointment beside it, until %v", got)
	}
	later := appointed(after(SourceEC2, "later", KindStop, 9*24*time.Hour))
	failed := Open(after(SourceEC2, "now", KindTerminate, time.Minute))
	failed.Join(later)
	if got := failed.OutlivedAt(); got.Sub(noon) != time.Minute+outliveAfter {
		t.Errorf("a reclaim that came to nothing lasted as long as the appointment beside it, until %v", got)
	}
	later.LeftAt = noon.Add(9*24*time.Hour - leastAhead)
	failed.Notices[1] = later
	if got := failed.OutlivedAt(); got.Sub(noon) != 9*24*time.Hour+outliveAfter {
		t.Errorf("outlived at %v, while the node leaves for its appointment", got)
	}
}
