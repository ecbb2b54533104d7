package migration

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer has not answered for what is still in this machine's own queues, as it is for seconds before a narrow link. It is no silent one for
// that as long as it says that it is there.
func TestPeerBehindASlowLinkIsNotSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ours, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for err == nil { // until the kernels at both ends take no more
		ours.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = ours.Write(make([]byte, 1<<20))
	}
	if !os.IsTimeout(err) {
		t.Fatal(err)
	}

	l := &lane{conn: wire.Client(ours, &tls.Config{ServerName: "b"})}
	l.writing.Store(true)
	now := time.Now()
	look := func(after time.Duration, says bool, want bool) {
		t.Helper()
		if now = now.Add(after); says {
			l.words.Add(1)
		}
		if l.silent(now) != want {
			t.Errorf("silent is %t with %d bytes in the queue", !want, l.queued())
		}
	}
	look(0, true, false)
	for range 10 {
		look(wire.AliveEvery, true, false)
	}
	look(silentAfter-time.Second, false, false)
	look(time.Second, false, true)
	look(time.Second, true, false)
	go io.Copy(io.Discard, theirs)
	for l.queued() > 0 {
		runtime.Gosched()
	}
	look(silentForAdvised, true, true) // its disk, then
	l.beat.Add(1)
	look(time.Second, true, false)
}
