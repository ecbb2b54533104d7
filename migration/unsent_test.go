package migration

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/lifeboat/lifeboat/migration/wire"
	"golang.org/x/sys/unix"
)

// What the kernel keeps of a lane when sending ends is still carried: no more than the link does in a moment, however many share it.
func TestLanesKeepLittleAtTheEnd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	kernel, err := raw.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{conn: wire.Client(raw, &tls.Config{})}
	for _, row := range []struct {
		speed float64
		want  int
	}{
		{0, 128 << 10},
		{20e6 / 8 / 8, 31_250}, // of 20 Mbit/s, an eighth
		{5e6 / 8 / 8, 16 << 10},
		{1e9 / 8, 128 << 10},
	} {
		l.bufferLess(row.speed)
		var got int
		var err error
		cannot := kernel.Control(func(fd uintptr) {
			got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		})
		if got != row.want {
			t.Errorf("at %.0f B/s: got %d (%v, %v), want %d", row.speed, got, cannot, err, row.want)
		}
	}
}
