package heartbeat

import (
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// streak logs a run of failures when it starts and when it ends, and in between once for every new kind of failure: a
// coordinator that is back but refuses the certificate must not hide behind "connection refused".
type streak struct {
	log          *slog.Logger
	starts, ends string // the messages

	since time.Time
	said  map[codes.Code]bool
}

func (s *streak) goesOn(err error) {
	if s.said == nil {
		s.since, s.said = time.Now(), make(map[codes.Code]bool)
	}
	if code := status.Code(err); !s.said[code] {
		s.said[code] = true
		s.log.Warn(s.starts, "err", plain(err))
	}
}

func (s *streak) end(args ...any) {
	if s.said == nil {
		return
	}
	s.log.Info(s.ends, append(args, "took", time.Since(s.since).Round(time.Millisecond))...)
	s.said = nil
}
