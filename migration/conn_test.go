package migration

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What a lane sends at once is one system call, with what TLS adds to it.
func TestConnWritesAsOne(t *testing.T) {
	here, there := net.Pipe()
	counted := &countingConn{Conn: here}
	a, b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}), certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"})
	c := Client(counted, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"}))
	s := Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, s) })
	defer reading.Wait()
	defer cut(c)
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

// Whoever has not shown a certificate, and may open as many connections as it likes, has nothing gathered for it.
func TestStrangerCostsNoBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"}).Server([]string{wire.Protocol}, certs.RoleNode)
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

// Of two connections, one over which a block and half of the next have come: the first has its receipt before there is more. On a link that
// many share the rest may be a minute away.
func TestReceiptDoesNotWaitForTheNextFrame(t *testing.T) {
	a, b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}), certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"})
	pipe := func(*testing.T) (ours, theirs net.Conn) { return net.Pipe() }
	for name, connect := range map[string]func(*testing.T) (ours, theirs net.Conn){
		"bare": pipe,
		"TLS": func(t *testing.T) (net.Conn, net.Conn) {
			here, there := pipe(t)
			return Client(here, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"})), Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
		},
		"TLS over TCP": func(t *testing.T) (net.Conn, net.Conn) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			here, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			there, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return Client(here, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"})), Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b")
			n.receive(t)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			running.Go(func() { n.receiver.Run(ctx) })
			ours, theirs := connect(t)
			defer cut(ours)
			running.Go(func() { n.receiver.Serve(ctx, theirs, "a") })
			replies := wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])
			ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
			if _, err := replies.Next(); err != nil {
				t.Fatal(err)
			}
			next := blockFrames(2, "cache/-/y", contentOf("y", 1000))
			running.Go(func() { ours.Write(append(blockFrames(1, "cache/-/x", contentOf("x", 1000)), next[:len(next)/2]...)) })
			ours.SetReadDeadline(time.Now().Add(10 * time.Second))
			f, err := replies.Next()
			if err != nil {
				t.Fatal(err)
			}
			if vs, err := wire.ParseVerdicts(f.Payload); err != nil || len(vs) != 1 || vs[0].Code != wire.VerdictDurable {
				t.Errorf("got %v, %v, want one receipt", vs, err)
			}
		})
	}
}
