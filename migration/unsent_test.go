package migration

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/wire"
	"github.com/lifeboat/lifeboat/pipenet"
)

// What the kernel keeps of lanes when sending ends is still carried: no more than the link carries in a moment, however many lanes share it.
func TestLanesKeepLittleAtTheEnd(t *testing.T) {
	raw, _ := pipenet.Loopback(t)
	kernel, err := raw.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	lowat := func() (bytes int, err error) {
		cannot := kernel.Control(func(fd uintptr) {
			bytes, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		})
		return bytes, errors.Join(cannot, err)
	}
	f := &flow{conn: wire.Client(raw, &tls.Config{}), out: newOutflow(DrainConfig{}), traffic: &traffic{}}
	// Nor does it keep ten seconds before, of a link that is so narrow: a lane would not see meanwhile what it carries.
	for _, row := range []struct {
		carried int64
		want    int
	}{{1 << 20, 0}, {1000, 16 << 10}, {100 << 20, 0}} {
		f.pace = pace{since: time.Now().Add(-time.Second), bytes: row.carried}
		f.carried(t.Context(), time.Now(), 0)
		if got, err := lowat(); got != row.want || err != nil {
			t.Errorf("%d bytes were carried in a second: got %d, %v, want %d", row.carried, got, err, row.want)
		}
	}
	for _, row := range []struct {
		speed float64
		want  int
	}{
		{0, 128 << 10},
		{20e6 / 8 / 8, 31_250}, // of 20 Mbit/s, an eighth
		{5e6 / 8 / 8, 16 << 10},
		{1e9 / 8, 128 << 10},
	} {
		bufferLess(f.conn, row.speed)
		if got, err := lowat(); got != row.want || err != nil {
			t.Errorf("at %.0f B/s: got %d, %v, want %d", row.speed, got, err, row.want)
		}
	}
}
