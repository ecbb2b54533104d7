package migration

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What a lane writes at once, with what TLS adds, is one system call.
func TestConnWritesAsOne(t *testing.T) {
	here, there := net.Pipe()
	counted := &countingConn{Conn: here}
	a, b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}), certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"})
	c := wire.Client(counted, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"}))
	s := wire.Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, s) })
	defer reading.Wait()
	defer wire.Cut(c)
	if _, err := c.Write([]byte("x")); err != nil { // the handshake happens at the first use
		t.Fatal(err)
	}
	before := counted.writes.Load()
	for range 20 {
		if _, err := c.Write(make([]byte, laneBuffer)); err != nil {
			t.Fatal(err)
		}
	}
	if got := counted.writes.Load() - before; got > 20 {
		t.Errorf("%d writes for 20 of %d bytes", got, laneBuffer)
	}
}

type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
