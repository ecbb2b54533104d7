package fallback_test

import (
	"context"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/fallback"
)

// The kernel keeps little that it has not sent. If it took a part whole, a bucket that reads slowly would be silent for as long as it reads
// that, and its connection be cut.
func TestKernelKeepsLittleThatIsUnsent(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "who")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	srv := httptest.NewServer(&fakeS3{objects: map[string][]byte{}, at: map[string]time.Time{}})
	defer srv.Close()
	conns := make(chan *net.TCPConn, 1)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			conns <- conn.(*net.TCPConn)
		}
		return conn, err
	}
	b, err := fallback.OpenBucket(t.Context(), fallback.S3{Bucket: "spill", Endpoint: srv.URL, PathStyle: true}, dial)
	if err != nil {
		t.Fatal(err)
	}
	if err := tryPut(t.Context(), b, 1000); err != nil {
		t.Fatal(err)
	}
	raw, err := (<-conns).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var kept int
	_ = raw.Control(func(fd uintptr) { kept, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) })
	if err != nil || kept <= 0 || kept > 256<<10 {
		t.Errorf("got %d bytes, %v, want 256 KiB at most", kept, err)
	}
}
