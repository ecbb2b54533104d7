package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/preemption"
)

func TestSendUntil(t *testing.T) {
	noticed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name   string
		source string
		kind   preemption.Kind
		lead   time.Duration // 0: no deadline
		tail   time.Duration // configured
		want   time.Duration // after the notice
	}{
		{"EC2 keeps 10 s back", preemption.SourceEC2, preemption.KindTerminate, 120 * time.Second, 0, 110 * time.Second},
		{"others keep 5 s back", preemption.SourceManual, preemption.KindManual, 120 * time.Second, 0, 115 * time.Second},
		{"a tail of one's own", preemption.SourceEC2, preemption.KindTerminate, 120 * time.Second, 30 * time.Second, 90 * time.Second},
		{"half of a short notice", preemption.SourceEC2, preemption.KindTerminate, 12 * time.Second, 0, 6 * time.Second},
		{"no lead at all", preemption.SourceEC2, preemption.KindHibernate, -1, 0, leastSending},
		{"no deadline", preemption.SourceSignal, preemption.KindManual, 0, 0, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := preemption.Notice{Source: row.source, ID: "x", Kind: row.kind, SeenAt: noticed}
			if row.lead != 0 {
				n.Deadline = noticed.Add(row.lead)
			}
			a := &Agent{}
			bounds := Default().Drain
			bounds.Tail = row.tail
			a.limits.Store(&limits{Drain: bounds})
			if got := a.sendUntil(preemption.Open(n)).Sub(noticed); got != row.want {
				t.Errorf("got %s after the notice, want %s", got, row.want)
			}
		})
	}
}

// The coordinator's wish becomes a notice, and its end a withdrawal of that notice; that nothing is wished is no news to
// a node of which nothing was wished.
func TestDirectivesAreNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wishes := []*api.Directive{
			nil,
			{Decommission: "dec-1", Reason: "disks", Remaining: durationpb.New(time.Minute)},
			{Decommission: "dec-1", Reason: "disks"},
			nil,
			nil,
			{Decommission: "dec-2"},
		}
		d := &directives{next: func(ctx context.Context) (*api.Directive, error) {
			if len(wishes) == 0 {
				return nil, context.Canceled
			}
			w := wishes[0]
			wishes = wishes[1:]
			return w, nil
		}}
		now := time.Now()
		want := []preemption.Notice{
			{ID: "dec-1", Reason: "disks", Deadline: now.Add(time.Minute)},
			{ID: "dec-1", Reason: "disks"},
			{ID: "dec-1", Withdrawn: true},
			{ID: "dec-2"},
		}
		for _, w := range want {
			w.Source, w.Kind, w.SeenAt = preemption.SourceOperator, preemption.KindDecommission, now
			if got, err := d.Next(t.Context()); err != nil || got != w {
				t.Errorf("got %+v (%v), want %+v", got, err, w)
			}
		}
		if _, err := d.Next(t.Context()); err != context.Canceled {
			t.Errorf("got %v at the end, want what next returned", err)
		}
	})
}
