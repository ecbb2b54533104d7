package heartbeat

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// skewSamples is of how many replies the quickest one counts. After so many replies a clock that was set shows.
const skewSamples = 8

// mostSkew bounds the skew that is told, as of a clock that lost its battery: a coordinator refuses figures that it holds
// for nonsense, and a beat must not be lost over this.
const mostSkew = 365 * 24 * time.Hour

// skew measures how far this machine's clock is ahead of the coordinator's. Nothing here is decided by it.
type skew struct {
	samples []sample // the newest last
}

type sample struct{ took, ahead time.Duration }

// measure takes a sample of a reply that the coordinator's clock dates at written. It counts as written in the middle of its
// journey, which is wrong by half of the journey at most.
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

// ahead is how far this clock is ahead by the quickest of the newest replies, less what that reply leaves uncertain: the
// first reply of a new leader, to which all nodes come at once, may take seconds, and half of them would pass for a wrong
// clock. False: no reply was measured.
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

// forget drops the samples: another coordinator has another clock.
func (s *skew) forget() { s.samples = s.samples[:0] }
