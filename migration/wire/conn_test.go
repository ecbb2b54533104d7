package wire

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/pipenet"
)

// A stranger that has shown no certificate may open as many connections as it likes: no buffers are made for them.
func TestStrangerCostsNoBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"}).Server([]string{Protocol}, certs.RoleNode)
		const strangers = 32
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range strangers {
			here, there := net.Pipe()
			defer here.Close()
			go here.Write([]byte{22, 3, 1, 2, 0, 1}) // a hello of 512 bytes begins
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := Server(there, b).HandshakeContext(ctx); err == nil {
				t.Error("a stranger was welcome")
			}
			cancel()
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / strangers; each > blocksPiece/8 {
			t.Errorf("each took %d bytes", each)
		}
	})
}

// meet returns both ends of a connection, and what their handshakes came to.
func meet(t *testing.T, allow certs.Role) (c, s *Conn, asked, answered error) {
	t.Helper()
	a, b := certs.Name{Role: certs.RoleNode, Name: "a"}, certs.Name{Role: certs.RoleNode, Name: "b"}
	here, there := pipenet.Loopback(t)
	c = Client(here, certs.Dev(a).Client([]string{Protocol}, b))
	s = Server(there, certs.Dev(b).Server([]string{Protocol}, allow))
	var answering sync.WaitGroup
	answering.Go(func() { answered = s.HandshakeContext(t.Context()) })
	asked = c.HandshakeContext(t.Context())
	if asked == nil && allow != certs.RoleNode { // in TLS 1.3 the client's handshake is over before the server has seen its certificate
		_, asked = c.Read(make([]byte, 1))
	}
	answering.Wait()
	return c, s, asked, answered
}

func TestClientHearsThatItIsRefused(t *testing.T) {
	_, _, asked, answered := meet(t, certs.RoleOperator)
	if asked == nil || asked.Error() != "remote error: tls: bad certificate" {
		t.Errorf("the client hears %v", asked)
	}
	if answered == nil {
		t.Error("the server let it in")
	}
}

// Two that seal with one key under the same nonce give it away. So once package record speaks, package tls cannot.
func TestPackageTLSIsCutOff(t *testing.T) {
	c, s, asked, answered := meet(t, certs.RoleNode)
	if asked != nil || answered != nil {
		t.Fatal(asked, answered)
	}
	for _, end := range []*Conn{c, s} {
		if end.records.Load() == nil {
			t.Skip("this processor's records are package tls's")
		}
		if _, err := end.Conn.Write([]byte("text")); !errors.Is(err, errTaken) {
			t.Errorf("package tls wrote: %v", err)
		}
	}
	go c.Write([]byte("text"))
	p := make([]byte, 10)
	if n, err := s.Read(p); err != nil || string(p[:n]) != "text" {
		t.Errorf("%q, %v", p[:n], err)
	}
}
