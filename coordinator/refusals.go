package coordinator

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

// refusalEvery is how often failed handshakes have a log line: a refused caller asks again and again.
const refusalEvery = time.Minute

// refusals logs handshakes that failed because one side does not trust the other: callers are nodes and operators of another fleet, or
// strangers.
type refusals struct {
	log *slog.Logger

	mu   sync.Mutex // guards what follows
	told time.Time
	more int // since then
}

// tell logs a failed handshake, or only counts it if one was logged within refusalEvery. A caller that has gone or is slow was not refused.
func (r *refusals) tell(caller net.Addr, err error) {
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.told) >= refusalEvery {
		r.log.Warn("a handshake failed: is the caller of this fleet?", "from", caller.String(), "err", err, "others", r.more)
		r.told, r.more = now, 0
		return
	}
	r.more++
}
