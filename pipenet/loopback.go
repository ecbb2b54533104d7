package pipenet

import (
	"net"
	"testing"
)

// Loopback returns both ends of a TCP connection, for what only a kernel does: its buffers and queues. They are closed when the
// test ends. It does not work in a synctest bubble.
func Loopback(t testing.TB) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return here, there
}
