package migration

import (
	"net"
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
		keepLittle(c.raw.Conn)
	}
}

// keepLittle bounds what the kernel keeps unsent. Where it cannot, the end of a drain is a little less silent.
func keepLittle(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}
