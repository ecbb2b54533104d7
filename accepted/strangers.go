package accepted

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// mostStrangers is a sixteenth of the file descriptors that the units let a daemon have, and as many as arrive in 0.4 s at 10,000 a
// second: a handshake takes less.
const mostStrangers = 4096

// strangersEvery is how often the log has that some were ended: one line, however many come.
const strangersEvery = time.Minute

// Strangers are the connections at one door of whom nothing is known or nothing is awaited. Each costs a file descriptor, and a process
// that has none left cannot open its own files either. Of more than 4096 the oldest is closed.
type Strangers struct {
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	order list.List  // the oldest first
	here  map[net.Conn]*list.Element
	ended int       // since they were told of
	told  time.Time // when they were
}

// NewStrangers are none. log is told when some are ended.
func NewStrangers(log *slog.Logger) *Strangers {
	return &Strangers{log: log, here: map[net.Conn]*list.Element{}}
}

// Enter takes a connection in that has just come.
func (s *Strangers) Enter(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.here[conn] = s.order.PushBack(conn)
	if s.order.Len() <= mostStrangers {
		return
	}
	oldest := s.order.Remove(s.order.Front()).(net.Conn)
	delete(s.here, oldest)
	s.ended++
	if now := time.Now(); now.Sub(s.told) >= strangersEvery {
		s.log.Warn("too many connections say nothing or ask nothing: the oldest are ended; is the port open to more than the fleet?",
			"at", oldest.LocalAddr(), "peer", oldest.RemoteAddr(), "times", s.ended, "most", mostStrangers)
		s.told, s.ended = now, 0
	}
	go oldest.Close() // TLS says goodbye, which takes as long as the other end likes, five seconds at most
}

// Leave is for one that is known now, or closed.
func (s *Strangers) Leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, is := s.here[conn]; is {
		s.order.Remove(e)
		delete(s.here, conn)
	}
}

// Note is for an HTTP server's ConnState: while a request is being answered its connection is no stranger's.
func (s *Strangers) Note(conn net.Conn, is http.ConnState) {
	s.Leave(conn)
	if is == http.StateNew || is == http.StateIdle {
		s.Enter(conn)
	}
}
