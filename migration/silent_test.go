package migration

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/wire"
	"github.com/lifeboat/lifeboat/pipenet"
)

// slowLink is a connection over which something is always on its way.
type slowLink struct{ net.Conn }

func (slowLink) OnItsWay() bool { return true }

// silences returns the signs of a peer that owes something, and a look at them: after that time, in which the peer said something or not,
// is it silent?
func silences(t *testing.T, conn net.Conn) (s *signs, look func(after time.Duration, says bool, want bool)) {
	s = &signs{}
	now := time.Now()
	return s, func(after time.Duration, says bool, want bool) {
		t.Helper()
		if now = now.Add(after); says {
			s.words.Add(1)
		}
		if s.silent(now, func() bool { return true }, conn) != want {
			t.Errorf("silent is %t with %d bytes in the queue", !want, queued(conn))
		}
	}
}

// On a narrow link bytes are on their way to a peer for seconds, and it cannot answer them before they come. It does not count as silent
// for that, as long as it says that it is there.
func TestPeerBehindASlowLinkIsNotSilent(t *testing.T) {
	s, look := silences(t, slowLink{})
	look(0, true, false)
	for range 10 {
		look(wire.AliveEvery, true, false)
	}
	look(silentAfter-time.Second, false, false)
	look(time.Second, false, true)
	s.beat.Add(1)
	look(time.Second, true, false)
}

// A peer whose disk hangs reads nothing, and says that it is there. What it is sent fills the queues of both machines; after that nothing
// is on its way, and the peer is silent.
func TestPeerThatReadsNothingIsSilent(t *testing.T) {
	ours, theirs := pipenet.Loopback(t)
	var err error
	for err == nil { // until the kernels at both ends take no more
		ours.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = ours.Write(make([]byte, 1<<20))
	}
	if !os.IsTimeout(err) {
		t.Fatal(err)
	}
	conn := wire.Client(ours, &tls.Config{ServerName: "b"})
	s, look := silences(t, conn)
	for onItsWay(conn) {
		runtime.Gosched()
	}
	if queued(conn) == 0 {
		t.Fatal("nothing waits")
	}
	look(0, true, false)
	look(wire.AliveEvery, true, false)
	look(silentForAdvised, true, true)
	go io.Copy(io.Discard, theirs)
	for queued(conn) > 0 {
		runtime.Gosched()
	}
	s.beat.Add(1)
	look(time.Second, true, false)
	look(silentForAdvised, true, true) // nothing is on its way: its disk hangs
}

// slowKernel is a connection over a link that carries that many bytes a second. It takes all of a piece or nothing, and knows which packets
// the other end has.
type slowKernel struct {
	slowLink
	rate  int
	there atomic.Int64
}

func (c *slowKernel) Acknowledged() int64 { return c.there.Load() }

func (c *slowKernel) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		some := min(len(p)-n, 1448)
		time.Sleep(time.Duration(some) * time.Second / time.Duration(c.rate))
		some, err = c.Conn.Write(p[n : n+some])
		n += some
		c.there.Add(int64(some))
	}
	return n, err
}

// A lane may share its link with so many others that one piece takes longer than peerTimeout. Its peer takes something all the time, and is
// not silent.
func TestPeerThatTakesAPieceForLongTakesSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 1, 100_000)
		b := newNode(t, "b")
		b.plain = true
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1
		tr.links = func(_ Peer, conn net.Conn) net.Conn { return &slowKernel{slowLink: slowLink{conn}, rate: 2000} }
		_, entries := tr.run(within(t, 2*time.Minute))
		wantThere(t, want, entries, b)
	})
}
