package receiver

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
	"github.com/lifeboat/lifeboat/pipenet"
)

// One block and half of the next have come over a connection: the first gets its receipt before there is more. On a link that many share
// the rest may be a minute away.
func TestReceiptDoesNotWaitForTheNextFrame(t *testing.T) {
	a, b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}), certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"})
	pipe := func(*testing.T) (ours, theirs net.Conn) { return net.Pipe() }
	for name, connect := range map[string]func(*testing.T) (ours, theirs net.Conn){
		"bare": pipe,
		"TLS": func(t *testing.T) (net.Conn, net.Conn) {
			here, there := pipe(t)
			return wire.Client(here, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"})), wire.Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
		},
		"TLS over TCP": func(t *testing.T) (net.Conn, net.Conn) {
			here, there := pipenet.Loopback(t)
			return wire.Client(here, a.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: "b"})), wire.Server(there, b.Server([]string{wire.Protocol}, certs.RoleNode))
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
			defer wire.Cut(ours)
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
