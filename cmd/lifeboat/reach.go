package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
)

const (
	defaultSocket   = "/run/lifeboat/agent.sock"
	coordinatorPort = "7411" // of listen.grpc when an address names no port
	dialTimeout     = 5 * time.Second
	askTimeout      = 15 * time.Second // for one question with one answer

	// Some answers take minutes, such as a list of a million blocks. Pings tell an agent that hangs from one that works, as package
	// client does for coordinators. gRPC pings no more often.
	pingAfter    = 10 * time.Second
	pingPatience = 5 * time.Second
)

// redial is when to dial an agent again that was not there: those who watch it, or wait for it, see within a second that it is back. With
// gRPC's own settings the pauses grow to two minutes.
var redial = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}

// reach holds the flags that say where a verb asks: a coordinator over mutual TLS, or the agent of this machine over its socket.
type reach struct {
	cmd         *cobra.Command
	coordinator string
	tlsDir      string
	devInsecure bool
	socket      string
	otherwise   string // the socket if neither a flag nor the environment names one; empty: the default
	warned      bool   // has said that the operator's certificate ends soon
}

// coordinatorFlags adds the flags of verbs that a coordinator answers.
func (r *reach) coordinatorFlags(cmd *cobra.Command) {
	r.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&r.coordinator, "coordinator", "", "the coordinator's `ADDR`, or those of several, with commas between (LIFEBOAT_COORDINATOR)")
	f.StringVar(&r.tlsDir, "tls-dir", "", "`DIR` with ca.pem and operator.pem|.key, as tls init makes it (LIFEBOAT_TLS_DIR)")
	f.BoolVar(&r.devInsecure, "dev-insecure", false, "for clusters that run with tls.dev_insecure; loopback only")
}

// socketFlags adds the flags of verbs that the agent of this machine answers.
func (r *reach) socketFlags(cmd *cobra.Command) {
	r.cmd = cmd
	cmd.Flags().StringVar(&r.socket, "socket", "", "`PATH` of the agent's socket, by default "+defaultSocket+" (LIFEBOAT_SOCKET)")
}

// coordinatorAddrs returns the coordinators' addresses; empty: neither the flag nor the environment names any.
func (r *reach) coordinatorAddrs() (addrs []string) {
	given := cmp.Or(r.coordinator, os.Getenv("LIFEBOAT_COORDINATOR"))
	for addr := range strings.FieldsFuncSeq(given, func(c rune) bool { return c == ',' || c == ' ' }) {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), coordinatorPort)
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

func (r *reach) socketPath() string {
	return cmp.Or(r.socket, os.Getenv("LIFEBOAT_SOCKET"), r.otherwise, defaultSocket)
}

// again returns the flags by which a following command asks the same agent or sidecar.
func (r *reach) again() string {
	if r.socket == "" {
		return ""
	}
	return " --socket " + word(r.socket)
}

// word makes a text one word of a command that is to be copied into a shell.
func word(s string) string {
	plain := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("/._-:,=@%+", c)
	}
	if strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// againFleet returns the flags by which a following command asks the same coordinators in the same way.
func (r *reach) againFleet() (flags string) {
	if r.coordinator != "" {
		flags += " --coordinator " + word(r.coordinator)
	}
	if r.tlsDir != "" {
		flags += " --tls-dir " + word(r.tlsDir)
	}
	if r.devInsecure {
		flags += " --dev-insecure"
	}
	return flags
}

// local reports whether to ask the agent of this machine rather than a coordinator. A flag beats the environment.
func (r *reach) local() (bool, error) {
	switch {
	case r.socket != "" && r.coordinator != "":
		return false, usagef("--socket asks the agent of this machine and --coordinator the fleet's: give one")
	case r.socket != "":
		return true, nil
	default:
		return len(r.coordinatorAddrs()) == 0, nil
	}
}

// nearest is as local, but if only the environment names a coordinator and this machine has an agent's socket, it chooses the agent.
func (r *reach) nearest() (bool, error) {
	local, err := r.local()
	if err != nil || local || r.coordinator != "" {
		return local, err
	}
	info, err := os.Stat(r.socketPath())
	return err == nil && info.Mode().Type() == os.ModeSocket, nil
}

// identity returns the operator's certificate for calls to coordinators and nodes.
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
		return nil, fmt.Errorf("load the operator's certificate from %s, as --tls-dir or LIFEBOAT_TLS_DIR says: %w", dir, err)
	}
	if left := time.Until(id.Expires()); !r.warned && left < min(operatorEndsSoon, id.Expires().Sub(id.Begins())/4) {
		r.warned = true
		fmt.Fprintf(r.cmd.ErrOrStderr(), "warning: the operator's certificate in %s ends in %s, at %s, and nobody is let in with it then: have a new one made (%s)\n",
			dir, show.Span(left), id.Expires().UTC().Format(time.RFC3339), certs.IssueCommand(filepath.Join(dir, "ca.pem"), id.Name()))
	}
	return id, nil
}

// operatorEndsSoon is how long before the end of an operator's certificate verbs warn of it, or a quarter of its life if that is less.
// Only the operator can renew it, and may be away for a week.
const operatorEndsSoon = 14 * 24 * time.Hour

// permit refuses to use the --dev-insecure identity, whose key everyone knows, with another machine.
func (r *reach) permit(addr string) error {
	if !r.devInsecure || config.Loopback(addr) {
		return nil
	}
	return usagef("--dev-insecure is for loopback addresses, and %s is none: use --tls-dir", addr)
}

func isPort(s string) bool {
	n, err := net.LookupPort("tcp", s) // s may be the name of a service
	return err == nil && n > 0
}

// operator returns a client of the leading coordinator.
func (r *reach) operator() (api.OperatorClient, *link, error) {
	addrs := r.coordinatorAddrs()
	if len(addrs) == 0 {
		return nil, nil, usagef("%s asks the coordinator: give --coordinator ADDR or set LIFEBOAT_COORDINATOR", verb(r.cmd))
	}
	for _, addr := range addrs {
		if strings.Contains(addr, "/") { // a URL, which would be looked up as a host name
			return nil, nil, usagef("a coordinator is named by HOST or HOST:PORT, such as 10.0.0.1:%s, and not by a URL", coordinatorPort)
		}
		if _, port, _ := net.SplitHostPort(addr); port == "" || !isPort(port) {
			return nil, nil, usagef("coordinator %s: want a port of 1 to 65535, or none for %s", addr, coordinatorPort)
		}
		if err := r.permit(addr); err != nil {
			return nil, nil, err
		}
	}
	id, err := r.identity()
	if err != nil {
		return nil, nil, err
	}
	l := &link{whom: "coordinator " + strings.Join(addrs, ", ")}
	l.conn = client.New(client.Config{
		Addresses:   addrs,
		Credentials: certs.Credentials(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
		Dial:        l.dial,
	})
	return api.NewOperatorClient(l.conn), l, nil
}

// call makes one call to the leading coordinator, or to the agent of this machine: method is one of the client's, such as
// api.OperatorClient.Forget. what is as in ask.
func call[C, Q, A any](ctx context.Context, to func() (C, *link, error), what string, method func(C, context.Context, Q, ...grpc.CallOption) (A, error), request Q) (reply A, err error) {
	err = ask(ctx, to, what, askTimeout, func(ctx context.Context, client C) (err error) {
		reply, err = method(client, ctx, request)
		return err
	})
	return reply, err
}

// ask puts a question that takes more than one call, or more time than others, to the leading coordinator or the agent of this machine.
// what names the question in the error of a failed call.
func ask[C any](ctx context.Context, to func() (C, *link, error), what string, patience time.Duration, question func(context.Context, C) error) error {
	client, l, err := to()
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = question(ctx, client)
	if _, answered := status.FromError(err); err != nil && answered {
		return l.rpcError(what, err)
	}
	return err // an error of this side, such as a full disk under the output
}

// openStream opens a stream at the agent of this machine or, unless local, at the leading coordinator. A link that is not nil is to be closed,
// also after an error.
func openStream[Q, A any](ctx context.Context, r *reach, local bool,
	agents func(api.LocalClient, context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error),
	coordinators func(api.OperatorClient, context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error),
	request Q) (stream grpc.ServerStreamingClient[A], l *link, err error) {
	if local {
		var agent api.LocalClient
		if agent, l, err = r.agent(); err == nil {
			stream, err = agents(agent, ctx, request)
		}
		return stream, l, err
	}
	var operator api.OperatorClient
	if operator, l, err = r.operator(); err == nil {
		stream, err = coordinators(operator, ctx, request)
	}
	return stream, l, err
}

// agent returns a client of this machine's agent.
func (r *reach) agent() (api.LocalClient, *link, error) {
	path := r.socketPath()
	l, err := dialSocket("the agent on "+path, path)
	if err != nil {
		return nil, nil, err
	}
	if r.cmd != nil {
		f := r.cmd.Flags()
		l.elsewhere = f.Lookup("coordinator") != nil && !f.Changed("self")
	}
	return api.NewLocalClient(l.conn), l, nil
}

// link is a gRPC connection with a name for messages.
type link struct {
	conn interface {
		grpc.ClientConnInterface
		io.Closer
	}
	whom      string
	elsewhere bool // the verb can ask the coordinator instead

	mu      sync.Mutex // guards lastErr
	lastErr error
}

// dialSocket connects lazily: the first call fails if nobody listens. It dials the socket itself, and ignores the proxies that the
// environment names.
func dialSocket(whom, path string) (*link, error) {
	l := &link{whom: whom}
	return l, l.connect(func(ctx context.Context, _ string) (net.Conn, error) { return l.dial(ctx, "unix", path) })
}

func (l *link) connect(dial func(context.Context, string) (net.Conn, error)) error {
	conn, err := grpc.NewClient("passthrough:///unix",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the kernel tells the agent who calls
		// gRPC's default of 4 MiB holds a list of some thousand blocks; a store may have more.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: askTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingPatience}),
		grpc.WithContextDialer(dial))
	if err != nil {
		return fmt.Errorf("reach %s: %w", l.whom, err)
	}
	l.conn = conn
	return nil
}

// dial dials, and keeps the error for dialError.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, network, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = err
	return conn, err
}

// dialError returns why the last dial failed, in words for people; nil: it did not.
func (l *link) dialError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed, network := errors.AsType[*net.OpError](l.lastErr)
	switch {
	case errors.Is(l.lastErr, os.ErrNotExist):
		return l.absent("there is no such socket")
	case network && failed.Net == "unix" && errors.Is(failed, syscall.ECONNREFUSED): // an agent that was killed leaves its socket
		return l.absent("nobody listens at that socket")
	case errors.Is(l.lastErr, os.ErrPermission):
		return fmt.Errorf("%w: the socket is for root, the agent's user and its group", os.ErrPermission)
	}
	if name, unknown := errors.AsType[*net.DNSError](l.lastErr); unknown {
		return fmt.Errorf("%w: is %s its name?", api.Plain(l.lastErr), name.Name)
	}
	if network {
		return fmt.Errorf("%w: does it run, and may this machine reach it there?", api.Plain(l.lastErr))
	}
	return l.lastErr
}

func (l *link) absent(why string) error {
	why += ": does the agent run?"
	if l.elsewhere {
		why += " (--coordinator ADDR asks the fleet instead)"
	}
	return errors.New(why)
}

func (l *link) Close() error { return l.conn.Close() }

// look shows the answer to a question once, or with watch again each second. what is as in ask.
func look[C any](cmd *cobra.Command, to func() (C, *link, error), watch bool, what string, question func(context.Context, C, io.Writer) error) error {
	client, l, err := to()
	if err != nil {
		return err
	}
	defer l.Close()
	return show.Draw(cmd.Context(), watch, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, w io.Writer) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := question(ctx, client, w); err != nil {
			return l.rpcError(what, err)
		}
		return nil
	})
}
