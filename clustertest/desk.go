package clustertest

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// desk is a client on a node's machine that asks its agent over the socket. It keeps its connections for as long as the agent's process
// lives, because stories ask ten times a second whether what they wait for has come.
type desk struct {
	agent  *grpc.ClientConn
	blocks *http.Transport
}

// desk returns the node's client, and makes it at the first question.
func (n *node) desk() *desk {
	if n.asks != nil {
		return n.asks
	}
	at, socket := n.c.network.attach(n.name), n.config().Listen.Socket
	dial := func(ctx context.Context) (net.Conn, error) { return at.Dial(ctx, "unix", socket) }
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.asks = &desk{agent: conn, blocks: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	return n.asks
}

// shutDown and kill end the process. The client hangs up first, so that the end does not wait for its connections.
func (n *node) shutDown() { n.c.t.Helper(); n.hangUp(); n.process.shutDown() }
func (n *node) kill()     { n.c.t.Helper(); n.hangUp(); n.process.kill() }

func (n *node) hangUp() {
	if n.asks != nil {
		n.asks.agent.Close()
		n.asks.blocks.CloseIdleConnections()
		n.asks = nil
	}
}
