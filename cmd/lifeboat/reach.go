package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
)

const (
	defaultSocket   = "/run/lifeboat/agent.sock"
	coordinatorPort = "7411" // of listen.grpc when an address names no port
	dialTimeout     = 5 * time.Second
	askTimeout      = 15 * time.Second // for one question with one answer
)

// reach is where a verb asks: a coordinator over mutual TLS, or the agent of this machine over its socket.
type reach struct {
	cmd         *cobra.Command
	coordinator string
	tlsDir      string
	devInsecure bool
	socket      string
}

// coordinatorFlags are those of verbs that a coordinator answers.
func (r *reach) coordinatorFlags(cmd *cobra.Command) {
	r.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&r.coordinator, "coordinator", "", "the coordinator's `ADDR` (LIFEBOAT_COORDINATOR)")
	f.StringVar(&r.tlsDir, "tls-dir", "", "`DIR` with ca.pem and operator.pem|.key, as tls init makes it (LIFEBOAT_TLS_DIR)")
	f.BoolVar(&r.devInsecure, "dev-insecure", false, "for clusters that run with tls.dev_insecure; loopback only")
}

// socketFlags are those of verbs that the agent of this machine answers.
func (r *reach) socketFlags(cmd *cobra.Command) {
	r.cmd = cmd
	cmd.Flags().StringVar(&r.socket, "socket", "", "`PATH` of the agent's socket, by default "+defaultSocket+" (LIFEBOAT_SOCKET)")
}

func (r *reach) coordinatorAddr() string {
	addr := cmp.Or(r.coordinator, os.Getenv("LIFEBOAT_COORDINATOR"))
	if _, _, err := net.SplitHostPort(addr); err != nil && addr != "" {
		return net.JoinHostPort(addr, coordinatorPort)
	}
	return addr
}

func (r *reach) socketPath() string {
	return cmp.Or(r.socket, os.Getenv("LIFEBOAT_SOCKET"), defaultSocket)
}

// local tells whether to ask the agent of this machine rather than a coordinator. A flag beats the environment.
func (r *reach) local() (bool, error) {
	switch {
	case r.socket != "" && r.coordinator != "":
		return false, usagef("--socket asks the agent of this machine and --coordinator the fleet's: give one")
	case r.socket != "":
		return true, nil
	default:
		return r.coordinatorAddr() == "", nil
	}
}

// identity is who the operator is to coordinators and to nodes.
func (r *reach) identity() (*certs.Identity, error) {
	if r.devInsecure {
		return certs.Dev(certs.Name{Role: certs.RoleOperator, Name: "dev"}), nil
	}
	dir := cmp.Or(r.tlsDir, os.Getenv("LIFEBOAT_TLS_DIR"))
	if dir == "" {
		return nil, usagef("give --tls-dir DIR (or LIFEBOAT_TLS_DIR) with an operator's certificate; `lifeboat tls init` makes one")
	}
	id, err := certs.LoadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("load the operator's certificate: %w", err)
	}
	return id, nil
}

// permit refuses to show an identity whose key everyone knows to anything but this machine.
func (r *reach) permit(addr string) error {
	if !r.devInsecure || config.Loopback(addr) {
		return nil
	}
	return usagef("--dev-insecure is for loopback addresses, and %s is none: use --tls-dir", addr)
}

// operator dials the coordinator.
func (r *reach) operator() (api.OperatorClient, *link, error) {
	addr := r.coordinatorAddr()
	if addr == "" {
		return nil, nil, usagef("%s asks the coordinator: give --coordinator ADDR or set LIFEBOAT_COORDINATOR", r.cmd.Name())
	}
	if err := r.permit(addr); err != nil {
		return nil, nil, err
	}
	id, err := r.identity()
	if err != nil {
		return nil, nil, err
	}
	tls := id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})
	l, err := dial("coordinator "+addr, "tcp", addr, credentials.NewTLS(tls))
	if err != nil {
		return nil, nil, err
	}
	return api.NewOperatorClient(l.conn), l, nil
}

// agent dials the agent of this machine.
func (r *reach) agent() (api.LocalClient, *link, error) {
	path := r.socketPath()
	l, err := dial("the agent on "+path, "unix", path, insecure.NewCredentials()) // the kernel tells it who calls
	if err != nil {
		return nil, nil, err
	}
	return api.NewLocalClient(l.conn), l, nil
}

// link is one gRPC connection with a name for messages.
type link struct {
	conn *grpc.ClientConn
	whom string

	mu      sync.Mutex // guards lastErr
	lastErr error
}

// dial connects lazily: the first call says whether anybody is there. It goes to addr itself, past any proxy that the
// environment names for the web.
func dial(whom, network, addr string, creds credentials.TransportCredentials) (*link, error) {
	l := &link{whom: whom}
	conn, err := grpc.NewClient("passthrough:///"+network,
		grpc.WithTransportCredentials(creds),
		// gRPC's own 4 MiB hold a list of some thousand nodes; a fleet may have more.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTimeout}
			c, err := d.DialContext(ctx, network, addr)
			l.note(err)
			return c, err
		}))
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", whom, err)
	}
	l.conn = conn
	return l, nil
}

func (l *link) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = err
}

// dialError is why the last connection did not come about, nil when it did.
func (l *link) dialError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(l.lastErr, os.ErrNotExist):
		return errors.New("there is no such socket: does the agent run? (--coordinator ADDR asks the fleet instead)")
	case errors.Is(l.lastErr, os.ErrPermission):
		return errors.New("permission denied: the socket is for root, the agent's user and its group")
	}
	return l.lastErr
}

func (l *link) Close() error { return l.conn.Close() }
