package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/coordinator"
)

var theCoordinator = certs.Name{Role: certs.RoleCoordinator}

// start runs a coordinator on loopback, and returns its address.
func start(t *testing.T) (address string) {
	t.Helper()
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	cfg := coordinator.Default()
	cfg.Name, cfg.DataDir = "c", t.TempDir()
	ready := make(chan struct{})
	c, err := coordinator.New(cfg, coordinator.Deps{
		Identity: certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c"}), GRPC: listeners[0], HTTP: listeners[1], Ready: func() { close(ready) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the coordinator ended at its start: %v", err)
	}
	return listeners[0].Addr().String()
}

func tlsOf(role certs.Role, name string) credentials.TransportCredentials {
	return credentials.NewTLS(certs.Dev(certs.Name{Role: role, Name: name}).Client([]string{"h2"}, theCoordinator))
}

// node is an agent as the coordinator sees it.
type node struct {
	*testing.T
	api.MembershipClient
	name string
}

func newNode(t *testing.T, address, name string) node {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(tlsOf(certs.RoleNode, name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n := node{t, api.NewMembershipClient(conn), name}
	r := &api.RegisterRequest{Node: name, Incarnation: name + "-1", PeerAddress: name + ":7412", Status: &api.Status{RoomBytes: 1 << 30}}
	if _, err := n.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	n.report(true)
	return n
}

func (n node) report(full bool, landed ...*api.HeldBlock) {
	n.Helper()
	stream, err := n.ReportBlocks(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	if err := stream.Send(&api.ReportBlocksRequest{Node: n.name, Incarnation: n.name + "-1", Full: full, Landed: landed}); err != nil {
		n.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		n.Fatal(err)
	}
}

func TestDriver(t *testing.T) {
	address := start(t)
	a := newNode(t, address, "a")
	newNode(t, address, "b")
	state := filepath.Join(t.TempDir(), "place")

	said, stop := drive(t, address, state, "spark/app/rdd_1_0")
	said("a gets work (ACTIVE)")
	said("b gets work (ACTIVE)")
	if _, err := a.WorkerDecommission(t.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: "a-1",
		Notice: &api.Notice{Incident: "i", Kind: "terminate", Source: "ec2"}}); err != nil {
		t.Fatal(err)
	}
	said("a gets no more work (WorkerDecommission)")
	c := newNode(t, address, "c")
	said("c gets work (NodeRegistered)")
	for _, n := range []*api.Notice{{Incident: "r", Kind: "rebalance", Source: "ec2", Stance: "pre-copy"}, nil} { // advice that came to nothing
		if _, err := c.Heartbeat(t.Context(), &api.HeartbeatRequest{Node: "c", Incarnation: "c-1", Status: &api.Status{RoomBytes: 1 << 30, Notice: n}}); err != nil {
			t.Fatal(err)
		}
		if n != nil {
			said("c gets no more work (NodeUnschedulable)")
		}
	}
	said("c gets work (NodeSchedulable)")
	b := newNode(t, address, "b")
	b.report(false, &api.HeldBlock{Id: "spark/app/rdd_1_0", Bytes: 7, From: "a"})
	said("block spark/app/rdd_1_0 is read from b at b:7412")
	stop()

	// The driver hears of what happens while it is away when it is back.
	if _, err := a.WithdrawDecommission(t.Context(), &api.WithdrawDecommissionRequest{Node: "a", Incarnation: "a-1", Incident: "i"}); err != nil {
		t.Fatal(err)
	}
	operator := client.New(client.Config{Addresses: []string{address}, Credentials: tlsOf(certs.RoleOperator, "eve")})
	defer operator.Close()
	r := &api.DecommissionRequest{Nodes: []string{"b"}, Timeout: durationpb.New(-1)}
	if _, err := api.NewOperatorClient(operator).Decommission(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	said, stop = drive(t, address, state, "spark/app/rdd_1_0")
	said("a gets work (ACTIVE)")
	said("c gets work (ACTIVE)")
	said("block spark/app/rdd_1_0 is read from b at b:7412")
	newNode(t, address, "d")
	said("d gets work (NodeRegistered)") // nothing that was known already was said in between
	stop()

	// A place that this fleet never had.
	if err := os.WriteFile(state, []byte("99.4000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, stop = drive(t, address, state)
	said("a gets work (ACTIVE)")
	said("c gets work (ACTIVE)")
	said("d gets work (ACTIVE)")
	said("events are missing: all is listed anew")
	stop()
}

// The next leader does not repeat what the last one alone told.
func TestDriverListsAnewAfterAFailover(t *testing.T) {
	address := start(t)
	newNode(t, address, "a")
	conn := client.New(client.Config{Addresses: []string{address}, Credentials: tlsOf(certs.RoleApp, "spark")})
	defer conn.Close()
	var out strings.Builder
	d := newDriver(conn, "", nil, &out)
	for _, place := range []client.Place{{Term: 1, Index: 5}, {Term: 1, Index: 6}, {Term: 2, Index: 7}} {
		if err := d.heed(t.Context(), client.Event{Type: "HostsRefused", Place: place}); err != nil {
			t.Fatal(err)
		}
		if listed := out.String() == "a gets work (ACTIVE)\n"; listed != (place.Term == 2) {
			t.Errorf("after %s: it said %q", place, out.String())
		}
	}
}

// A node that has blocks may be lost, or the blocks there may break. The driver then asks where the blocks are, and takes none
// for lost only because no node has reported it yet.
func TestDriverAsksAnewForWhatANodeHad(t *testing.T) {
	address := start(t)
	newNode(t, address, "a")
	conn := client.New(client.Config{Addresses: []string{address}, Credentials: tlsOf(certs.RoleApp, "spark")})
	defer conn.Close()
	const id = "spark/app/rdd_1_0"
	for _, what := range []string{"NodeLost", "BlocksBroken"} {
		var out strings.Builder
		d := newDriver(conn, "", []string{id}, &out)
		d.blocks[id] = []string{"b"}
		if err := d.heed(t.Context(), client.Event{Type: what, Node: "b"}); err != nil {
			t.Fatal(err)
		}
		if want := "block " + id + " is unknown to the coordinator: any agent says whether a node has it\n"; out.String() != want {
			t.Errorf("%s: got %q, want %q", what, out.String(), want)
		}
	}
}

// drive runs a driver. said waits for its lines, one after the other.
func drive(t *testing.T, address, state string, blocks ...string) (said func(want string), stop func()) {
	t.Helper()
	conn := client.New(client.Config{Addresses: []string{address}, Credentials: tlsOf(certs.RoleApp, "spark")})
	lines, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := newDriver(conn, state, blocks, out).Run(ctx)
		out.CloseWithError(io.EOF)
		ended <- err
	}()
	r := bufio.NewScanner(lines)
	said = func(want string) {
		t.Helper()
		if !r.Scan() {
			t.Fatalf("the driver ended: %v, want %q", <-ended, want)
		}
		if got := strings.TrimSpace(r.Text()); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	return said, func() {
		t.Helper()
		cancel()
		lines.Close()
		if err := <-ended; err != nil {
			t.Errorf("got %v at its end, want nil", err)
		}
		conn.Close()
	}
}
