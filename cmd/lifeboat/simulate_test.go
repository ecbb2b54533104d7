package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
)

// searching is an agent that has begun with a rehearsal, and looks through its stores without end.
type searching struct {
	api.UnimplementedLocalServer
	begun func()
}

func (a *searching) Simulate(ctx context.Context, _ *api.SimulateRequest) (*api.SimulateReply, error) {
	a.begun()
	<-ctx.Done()
	return nil, ctx.Err()
}

// Who interrupts a rehearsal while the agent looks through its stores hears that the node leaves all the same, and how to take it back.
func TestARehearsalGoesOnWhenItIsInterrupted(t *testing.T) {
	dir, err := os.MkdirTemp("", "lb") // the path of a socket has 108 bytes at most (unix(7))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "agent.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	g := grpc.NewServer()
	api.RegisterLocalServer(g, &searching{begun: interrupt})
	background(t.Cleanup, g.Stop, func() { _ = g.Serve(ln) })
	var stderr bytes.Buffer
	code := run(ctx, []string{"simulate", "terminate", "--socket", socket}, io.Discard, &stderr)
	want := fmt.Sprintf("lifeboat: simulate terminate: the agent on %[1]s: context canceled; it may have begun, and then it goes on: "+
		"`lifeboat status --socket %[1]s` shows it, `lifeboat cancel --socket %[1]s` takes it back\n", socket)
	if code != exitFailed || stderr.String() != want {
		t.Errorf("got code %d, %s\nwant %s", code, &stderr, want)
	}
	code, _, said := lifeboat(t, "simulate", "terminate", "--socket", socket+".not")
	if want := "lifeboat: simulate terminate: the agent on " + socket + ".not does not answer: there is no such socket: does the agent run?\n"; code != exitFailed || said != want {
		t.Errorf("got code %d, %s\nwant %s", code, said, want)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket + ".left", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false) // as an agent that was killed leaves it
	left.Close()
	code, _, said = lifeboat(t, "simulate", "terminate", "--socket", socket+".left")
	if want := "lifeboat: simulate terminate: the agent on " + socket + ".left does not answer: nobody listens at that socket: does the agent run?\n"; code != exitFailed || said != want {
		t.Errorf("got code %d, %s\nwant %s", code, said, want)
	}
}
