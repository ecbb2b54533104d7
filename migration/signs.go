package migration

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/wire"
)

// signs are what a lane sees of its peer: whether its machine speaks, and whether what it is sent and owes gets on. They tell a peer that
// is gone from one whose disk hangs, and both from one behind a slow link. The goroutines that send and receive note them, and they
// decide nothing: who reads them cuts the lane (diskio.Watch), or has others not wait for it (peers.silent).
type signs struct {
	words atomic.Int64 // frames that the peer sent
	beat  atomic.Int64 // rises with every piece sent and every word from the peer that says more than that it is there

	// Of whoever calls silent.
	heard int64     // beat when it last rose or nothing was owed
	since time.Time // then, or when some of that was on its way
	said  int64     // words when they last rose or nothing was owed
	spoke time.Time // then
}

// silentAfter is how long a peer may say nothing before others do not wait for it (peers.silent).
const silentAfter = 3 * wire.AliveEvery

// silent reports whether the peer, while it owed something, has taken and answered nothing for silentForAdvised, with nothing on its way to
// it; or has said nothing for silentAfter. Where the peer's disk hangs, bytes for it lie in this machine's queues, too, but are not on their
// way. silent is called now and then, by one goroutine.
func (s *signs) silent(now time.Time, owed func() bool, conn net.Conn) bool {
	beat, words := s.beat.Load(), s.words.Load()
	owes := owed() && !s.since.IsZero()
	if beat != s.heard || !owes || onItsWay(conn) {
		s.heard, s.since = beat, now
	}
	if words != s.said || !owes {
		s.said, s.spoke = words, now
	}
	return now.Sub(s.since) >= silentForAdvised || now.Sub(s.spoke) >= silentAfter
}
