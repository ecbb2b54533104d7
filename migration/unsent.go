package migration

import (
	"net"
	"time"

	"github.com/lifeboat/lifeboat/migration/wire"
)

const (
	// bufferLessBefore is how long before the end of sending a drain's connections begin to keep little in the kernel. Left to
	// itself the kernel takes some megabytes that it cannot send yet, which a narrow link would still be carrying when all should be
	// silent. Until then they are welcome: on a fast link they are worth a third of the throughput (measured).
	bufferLessBefore = 5 * time.Second
	// A connection may then keep what it carries in mostUnsentFor. So the link, which connections share, has that long to carry on when
	// sending ends, whatever the share of each. A connection needs leastUnsent to be woken in time, and mostUnsent is enough for fast ones.
	mostUnsentFor = 100 * time.Millisecond
	leastUnsent   = 16 << 10
	mostUnsent    = 128 << 10
	// narrowLane is the rate below which a connection keeps little all the time. On a narrow link that many lanes share, the kernel would
	// keep the bytes of ten seconds and more. All that time a lane that writes would not see what it carries, and neither hold back nor
	// break off.
	narrowLane = 256 << 10
)

// keepLittle makes the connections keep little once sending is about to end.
func (ls *lanes) keepLittle(now time.Time) {
	if ls.out.ends == nil {
		return
	}
	if end := ls.out.ends(); end.IsZero() || end.Sub(now) > bufferLessBefore {
		return
	}
	for _, l := range ls.carriers.lanes() {
		bufferLess(l.conn, ls.peers.speed(l.peer))
	}
}

func bufferLess(conn net.Conn, speed float64) {
	if c, ok := conn.(*wire.Conn); ok {
		c.KeepLittle(unsentBytes(speed))
	}
}

// bufferFreely makes a connection keep as much as the kernel would.
func bufferFreely(conn net.Conn) {
	if c, ok := conn.(*wire.Conn); ok {
		c.KeepLittle(0)
	}
}

// unsentBytes returns what a connection may keep that carries speed bytes per second; 0: not known.
func unsentBytes(speed float64) int {
	if speed == 0 {
		return mostUnsent
	}
	return int(min(max(speed*mostUnsentFor.Seconds(), leastUnsent), mostUnsent))
}

// queued is how many bytes the kernel has taken that are not at the other end.
func queued(conn net.Conn) int64 {
	if c, ok := conn.(*wire.Conn); ok {
		return c.Queued()
	}
	return 0
}

// onItsWay reports whether bytes are on their way to the peer's machine. Bytes that wait because it has no room for more are not.
func onItsWay(conn net.Conn) bool {
	c, ok := conn.(interface{ OnItsWay() bool })
	return ok && c.OnItsWay()
}

// acknowledged is how many bytes the peer's machine has acknowledged; 0: the kernel does not say.
func acknowledged(conn net.Conn) int64 {
	if c, ok := conn.(interface{ Acknowledged() int64 }); ok {
		return c.Acknowledged()
	}
	return 0
}
