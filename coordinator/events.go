package coordinator

import (
	"context"
	"strconv"
)

// eventBatch bounds what a follower copies at a time.
const eventBatch = 256

// evDropped stands for events that were asked for and are no longer kept: whoever follows should look at the nodes anew.
const evDropped = "EventsDropped"

// since returns the oldest kept events after an index, and a channel that is closed when there are more.
func (r *replica) since(after uint64) (events []event, news <-chan struct{}) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := r.machine.Events
	if len(all) == 0 {
		return nil, r.news
	}
	oldest := all[0].Index
	if after != 0 && after+1 < oldest {
		dropped := event{Index: oldest - 1, Time: all[0].Time, Type: evDropped, Data: map[string]string{"events": strconv.FormatUint(oldest-1-after, 10)}}
		events = append(events, dropped)
		after = oldest - 1
	}
	skip := 0
	if after >= oldest {
		skip = int(min(after-oldest+1, uint64(len(all))))
	}
	return append(events, all[skip:min(skip+eventBatch, len(all))]...), r.news
}

// coming is closed when there is a newer event than now.
func (r *replica) coming() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.news
}

// follow gives every event after an index to send, in order. It returns when ctx ends, when send fails, or, unless stay,
// after the newest event.
func (f *fleet) follow(ctx context.Context, after uint64, stay bool, send func(event) error) error {
	for {
		events, news := f.ledger.fsm.since(after)
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			after = e.Index
		}
		if len(events) > 0 {
			continue
		}
		if !stay {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}
