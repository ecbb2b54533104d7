// Package localsock is how programs on its own machine reach a daemon: a Unix socket that speaks gRPC and plain HTTP. The
// daemon asks the kernel who calls.
//
// The socket's mode decides who may open it: root, the daemon's own user, and the socket's group. The caller's user, by the
// kernel's word, decides who may change something: root and the daemon's own user. The package knows no call by name.
package localsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// headerTimeout bounds how long a connection may stay silent.
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
)

// Network makes and reaches sockets. A nil func is the real one.
type Network struct {
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// Listen makes the socket, and its directory where there is none. It replaces a socket that a killed daemon left behind. It
// returns an error if another daemon answers on the socket, or if the path is a file.
func Listen(ctx context.Context, on Network, path string) (net.Listener, error) {
	if on.Listen == nil {
		on.Listen = net.Listen
	}
	if on.Dial == nil {
		on.Dial = new(net.Dialer).DialContext
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch conn, err := on.Dial(ctx, "unix", path); {
	case err == nil:
		conn.Close()
		return nil, fmt.Errorf("%s is another daemon's, and it answers: stop it, or give this one another socket", path)
	case errors.Is(err, syscall.EAGAIN): // connect(2): the backlog is full
		return nil, fmt.Errorf("%s is another daemon's, and more wait there than it answers: stop it, or give this one another socket", path)
	case ctx.Err() != nil:
		return nil, err // the error says nothing about another daemon
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a file and no socket: name another path, or remove it", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := on.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if _, ok := l.(*net.UnixListener); !ok {
		return l, nil // in a test
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Server answers gRPC with calls and everything else with page. Gate tells the calls who the caller is.
func Server(calls *grpc.Server, page http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			page.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, callerOf(c))
		},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// Gate lets only root and this process's own user make the calls in changing, which are full names of methods, and logs who
// made them.
func Gate(log *slog.Logger, changing ...string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !slices.Contains(changing, info.FullMethod) {
			return next(ctx, req)
		}
		who, _ := ctx.Value(callerKey{}).(caller)
		if !who.known {
			return nil, status.Error(codes.PermissionDenied, "the kernel does not say who calls")
		}
		if who.uid != 0 && int(who.uid) != os.Geteuid() {
			return nil, status.Errorf(codes.PermissionDenied, "uid %d may look but change nothing: ask as root or as the daemon's user", who.uid)
		}
		log.Info("asked on the socket", "method", info.FullMethod, "uid", who.uid, "pid", who.pid)
		return next(ctx, req)
	}
}

const (
	// LongestReason bounds a reason that a caller gives, in bytes.
	LongestReason = 1000
	// longestLead bounds a deadline: one in a year is as good as none.
	longestLead = 366 * 24 * time.Hour
)

// Deadline returns the instant that is lead from now; zero: the caller gives none. name is the request's field, for errors.
// It checks the caller's reason, too.
func Deadline(name string, lead *durationpb.Duration, reason string) (time.Time, error) {
	if len(reason) > LongestReason {
		return time.Time{}, status.Errorf(codes.InvalidArgument, "reason of %d bytes, at most %d", len(reason), LongestReason)
	}
	if lead == nil {
		return time.Time{}, nil
	}
	d := lead.AsDuration()
	if d < 0 || d > longestLead {
		return time.Time{}, status.Errorf(codes.InvalidArgument, "%s %s: want 0 to %.0fh, or none", name, d, longestLead.Hours())
	}
	return time.Now().Add(d), nil
}

// Rehearsal returns the deadline of a rehearsal, as Deadline does. A rehearsal that is not dry ends at its deadline, so it is refused if it
// has no time: the caller would take it for one that went well.
func Rehearsal(in *durationpb.Duration, dry bool, reason string) (deadline time.Time, err error) {
	if in != nil && in.AsDuration() == 0 && !dry {
		return time.Time{}, status.Error(codes.InvalidArgument, "in 0s: a rehearsal is over at its deadline, so nothing would happen: give it time, or make it a dry run")
	}
	return Deadline("in", in, reason)
}

type callerKey struct{}

// caller is the process at the other end of the socket, as the kernel names it.
type caller struct {
	known bool
	uid   uint32
	pid   int32
}

func callerOf(c net.Conn) caller {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return caller{}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return caller{}
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return caller{}
	}
	return caller{known: true, uid: cred.Uid, pid: cred.Pid}
}
