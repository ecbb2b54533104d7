package migration

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// hushBefore is how long before the end of sending a drain's connections begin to keep little in the kernel. By itself
	// that takes some megabytes that it cannot send yet, which a narrow link would still be carrying when all should be
	// silent. Until then they are welcome: on a fast link they are worth a third of the throughput (measured).
	hushBefore = 5 * time.Second
	// unsentBytes is what it may keep then: 50 ms of 20 Mbit/s.
	unsentBytes = 128 << 10
)

// hush has the connections keep little once sending is about to end.
func (d *Drain) hush(now time.Time) {
	if d.cfg.Until == nil {
		return
	}
	if end := d.cfg.Until(); end.IsZero() || end.Sub(now) > hushBefore {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.lanes {
		if l, ok := c.(*lane); ok {
			l.hush()
		}
	}
}

func (l *lane) hush() {
	if c, ok := l.conn.(*Conn); ok {
		c.raw.keepLittle()
	}
}

// queued is how many bytes the kernel has taken that are not at the other end: on a narrow link seconds of it.
func (l *lane) queued() (n int64) {
	if c, ok := l.conn.(*Conn); ok && c.raw.kernel != nil {
		_ = c.raw.kernel.Control(func(fd uintptr) {
			unsent, _ := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // 0, where it is not said
			n = int64(unsent)
		})
	}
	return n
}

// keepLittle bounds what the kernel keeps unsent. Where it cannot, the end of a drain is a little less silent.
func (c *gatheringConn) keepLittle() {
	if c.kernel == nil {
		return
	}
	_ = c.kernel.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}
