package agent

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/preemption"
)

// directives are the coordinator's wishes as one more source of notices.
type directives struct {
	next func(context.Context) (*api.Directive, error)
	last string
	kept *api.Directive // another wish that came in place of the last: given once that is withdrawn
}

// Next waits for another wish, or for the end of the one that stands.
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
			w, d.kept = nil, w // the one that stood was taken back between two beats
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
