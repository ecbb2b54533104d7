package heartbeat

import (
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// handover is how long nobody may be there to be told before that is worth a line: a coordinator that is restarted, or an election, would
// have each agent of the fleet write two.
const handover = 3 * time.Second

// streak logs a run of failures when it starts and when it ends, and in between once for every new kind of failure: a
// coordinator that is back but refuses the certificate must not hide behind "connection refused".
type streak struct {
	log          *slog.Logger
	starts, ends string // the messages

	since time.Time
	said  map[codes.Code]bool
}

func (s *streak) goesOn(err error) {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	code := status.Code(err)
	if code == codes.Unavailable && time.Since(s.since) < handover {
		return
	}
	if s.said == nil {
		s.said = make(map[codes.Code]bool)
	}
	if !s.said[code] {
		s.said[code] = true
		s.log.Warn(s.starts, "err", plain(err))
	}
}

func (s *streak) end(args ...any) {
	if s.said != nil {
		s.log.Info(s.ends, append(args, "took", time.Since(s.since).Round(time.Millisecond))...)
	}
	s.said, s.since = nil, time.Time{}
}
