package heartbeat

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// skewSamples is of how many replies the quickest counts. A clock that is set shows after as many.
const skewSamples = 8

// mostSkew is all that is told of a clock that lost its battery: a coordinator refuses what it holds to be nonsense, and a
// beat must not be lost over this.
const mostSkew = 365 * 24 * time.Hour

// skew measures how far this machine's clock is ahead of the coordinator's. Nothing here is decided by it.
type skew struct {
	samples []sample // the newest last
}

type sample struct{ took, ahead time.Duration }

// measure takes a reply that was written at a time by the coordinator's clock. It is held to have been written in the middle
// of its journey, which is wrong by half of that journey at most.
func (s *skew) measure(sent, came time.Time, written *timestamppb.Timestamp) {
	if written == nil || written.CheckValid() != nil {
		return
	}
	took := came.Sub(sent)
	ahead := came.Round(0).Add(-took / 2).Sub(written.AsTime())
	if len(s.samples) == skewSamples {
		s.samples = append(s.samples[:0], s.samples[1:]...)
	}
	s.samples = append(s.samples, sample{took, ahead})
}

// ahead is by the quickest of the newest replies, and no more than is certain: the first one of a new leader, to whom all come at once,
// may take seconds, and half of them would be a clock that is off. False: none was measured.
func (s *skew) ahead() (time.Duration, bool) {
	if len(s.samples) == 0 {
		return 0, false
	}
	best := s.samples[0]
	for _, x := range s.samples[1:] {
		if x.took <= best.took {
			best = x
		}
	}
	sure := min(max(best.ahead.Abs()-best.took/2, 0), mostSkew)
	if best.ahead < 0 {
		sure = -sure
	}
	return sure, true
}

// forget is for another coordinator, which has another clock.
func (s *skew) forget() { s.samples = s.samples[:0] }
