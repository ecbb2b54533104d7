package coordinator

import (
	"context"
	"slices"
	"time"
)

const (
	// agreePace is how often a coordinator compares its clock with the others', and looks which of them answer.
	agreePace = 10 * time.Second
	// mostApart is how far the leader's clock may be off the others'. Deadlines are instants in the log: a failover moves each of them
	// by the difference of the two clocks.
	mostApart = time.Second
)

// lookAround asks the other coordinators every agreePace until ctx ends. It notes which of them answer, how far this one's clock is ahead of
// theirs, and whether one of them that has a leader says that this one is no member.
func (s *succession) lookAround(ctx context.Context) error {
	tick := time.NewTicker(agreePace)
	defer tick.Stop()
	for {
		ahead := []time.Duration{0} // of itself
		members, said := s.colleagues.all(), s.colleagues.positions(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.attendance.note(members, said, s.log)
		disowned := false
		for _, p := range said {
			ahead = append(ahead, -p.ahead)
			disowned = disowned || p.GetStranger()
		}
		s.ledger.disowned.Store(disowned)
		s.ahead.Store(int64(offMost(ahead)))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// offMost is how far a clock is ahead of the median of all, its own included. It is 0 up to mostApart, and with fewer than three clocks: of
// two, none can be told to be the wrong one.
func offMost(ahead []time.Duration) time.Duration {
	if len(ahead) < 3 {
		return 0
	}
	slices.Sort(ahead)
	if off := ahead[len(ahead)/2]; off.Abs() > mostApart {
		return off
	}
	return 0
}

// clockOff is how far this clock is ahead of most others, where that is too far to lead.
func (s *succession) clockOff() time.Duration { return time.Duration(s.ahead.Load()) }
