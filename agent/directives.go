package agent

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/preemption"
)

// directives are the coordinator's directives as one more source of notices.
type directives struct {
	next func(context.Context) (*api.Directive, error)
	last string
	kept *api.Directive // a directive that replaced the last one: returned after the withdrawal of that
}

// Next waits for a new directive, or for the end of the one in force.
func (d *directives) Next(ctx context.Context) (preemption.Notice, error) {
	for {
		w, err := d.kept, error(nil)
		if w == nil {
			w, err = d.next(ctx)
		}
		if err != nil {
			return preemption.Notice{}, err
		}
		d.kept = nil
		if w != nil && d.last != "" && w.Decommission != d.last {
			w, d.kept = nil, w // the one in force was taken back between two beats
		}
		n := preemption.Notice{Source: preemption.SourceOperator, Kind: preemption.KindDecommission, SeenAt: time.Now()}
		if w == nil {
			if d.last == "" {
				continue
			}
			n.ID, n.Withdrawn, d.last = d.last, true, ""
			return n, nil
		}
		n.ID, n.Reason, d.last = w.Decommission, w.Reason, w.Decommission
		if w.Remaining != nil {
			n.Deadline = n.SeenAt.Add(w.Remaining.AsDuration())
		}
		return n, nil
	}
}
