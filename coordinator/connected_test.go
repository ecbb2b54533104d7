package coordinator

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// One certificate cannot take all connections of the coordinator; a client that closes one gets another.
func TestConnectionsOfOneNameAreBounded(t *testing.T) {
	var c connected
	who := certs.Name{Role: certs.RoleNode, Name: "host-a"}
	one, _ := net.Pipe()
	kept := net.Conn(nil)
	for i := range mostOfOne {
		var err error
		if kept, err = c.admit(one, who); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := c.admit(one, who); err == nil || !strings.Contains(err.Error(), "lifeboat revoke node host-a") {
		t.Errorf("one more: got %v, want a word of what to do", err)
	}
	if _, err := c.admit(one, certs.Name{Role: certs.RoleNode, Name: "host-b"}); err != nil {
		t.Errorf("another's: %v", err)
	}
	kept.Close()
	kept.Close()
	if _, err := c.admit(one, who); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if _, err := c.admit(one, who); err == nil {
		t.Error("a connection that was closed twice makes room for two")
	}
}

// The headers of a call are bounded: by default gRPC would buffer 16 MB of them on each connection.
func TestHeadersOfACallAreBounded(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("host-a")
		a.register()
		long := metadata.AppendToOutgoingContext(v.Context(), "x", strings.Repeat("y", 2*maxHeaderBytes))
		if _, err := a.Heartbeat(long, &api.HeartbeatRequest{Node: a.name, Incarnation: a.incarnation, Status: a.status}); err == nil {
			t.Error("a call with long headers was answered")
		}
		a.beat()
	})
}

// A node cannot have more calls under way than an agent has: the message of each may take 4 MiB while it comes.
func TestCallsOfOneNodeAreBounded(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("host-a"), v.agent("host-b")
		a.register()
		b.register()
		ctx, hangUp := context.WithCancel(v.Context())
		others := []*grpc.ClientConn{v.conn(certs.RoleNode, "host-a"), v.conn(certs.RoleNode, "host-a")} // one takes maxStreams
		for i := range mostCalls {
			s, err := api.NewMembershipClient(others[i%2]).ReportBlocks(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&api.ReportBlocksRequest{Node: a.name, Incarnation: a.incarnation}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		beat := func(one *agent) error {
			_, err := one.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: one.name, Incarnation: one.incarnation, Status: one.status})
			return err
		}
		if err := beat(a); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "lifeboat revoke node host-a") {
			t.Errorf("call %d: got %v, want a word of what to do", mostCalls+1, err)
		}
		if err := beat(b); err != nil {
			t.Errorf("another node's: %v", err)
		}
		hangUp()
		synctest.Wait()
		if err := beat(a); err != nil {
			t.Errorf("after the others are over: %v", err)
		}
	})
}
