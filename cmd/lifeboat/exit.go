package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/client"
)

// The exit codes are a contract: scripts branch on them.
const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNotFound   = 3
	exitIncomplete = 4 // done, but something was lost or timed out
)

// exitError is an error with the exit code of the process.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func notFoundf(format string, args ...any) error {
	return &exitError{exitNotFound, fmt.Errorf(format, args...)}
}

func incompletef(format string, args ...any) error {
	return &exitError{exitIncomplete, fmt.Errorf(format, args...)}
}

func exitCode(err error, started bool) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if !started {
		return exitUsage
	}
	return exitFailed
}

// rpcError adds what was asked and of whom to a call's error, and turns its gRPC code into an exit code.
func (l *link) rpcError(asked string, err error) error {
	s := status.Convert(err)
	err = fmt.Errorf("%s: %s: %s", asked, l.answered(s.Code()), s.Message())
	switch s.Code() {
	case codes.NotFound:
		return &exitError{exitNotFound, err}
	case codes.InvalidArgument:
		return &exitError{exitUsage, err}
	case codes.Unavailable, codes.DeadlineExceeded:
		// The dialler's error is better: gRPC's own message wraps it in three layers. But it is of one coordinator, and the message may be
		// of all, each with a reason of its own.
		if dial := l.dialError(); dial != nil && (s.Code() == codes.DeadlineExceeded || strings.HasPrefix(s.Message(), connectionError)) {
			return fmt.Errorf("%s: %s does not answer: %w", asked, l.whom, dial)
		}
	}
	if why := notOurs(s.Message()); why != nil {
		return fmt.Errorf("%s: %s: %w", asked, l.whom, why)
	}
	if s.Code() == codes.Unimplemented {
		return fmt.Errorf("%s: %s does not know how: it is a sidecar, or another version than this", asked, l.whom)
	}
	return err
}

// answered names the coordinator that gave the answer, or all that were asked if none answered.
func (l *link) answered(code codes.Code) string {
	if c, several := l.conn.(*client.Conn); several && code != codes.Unavailable && code != codes.DeadlineExceeded {
		return "coordinator " + c.Address()
	}
	return l.whom
}

// errHangs is the error for a server that takes connections and does not answer.
var errHangs = errors.New("no answer in time, though connections are taken: it may hang, see its log")

// unacknowledged is gRPC's message when the server no longer answers pings.
const unacknowledged = "keepalive ping failed to receive ACK within timeout"

// connectionError is what gRPC puts before why a connection was not made.
const connectionError = "connection error: desc = "

// notOurs translates gRPC's messages about a server that hangs, is no coordinator, or is not of this fleet, into plain words; nil: the
// message is another one. It is for people; nothing branches on it.
func notOurs(said string) error {
	if strings.Contains(said, unacknowledged) {
		return errHangs
	}
	if quoted, ok := strings.CutPrefix(said, connectionError); ok {
		why, err := strconv.Unquote(quoted)
		reason, shake := strings.CutPrefix(why, "transport: authentication handshake failed: ")
		preface, silent := strings.CutPrefix(why, "error reading server preface: ")
		if reason == context.DeadlineExceeded.Error() || silent && strings.HasSuffix(preface, net.ErrClosed.Error()) { // closed by this side
			return errHangs
		}
		if err == nil && shake {
			return fmt.Errorf("no handshake: %w: is --tls-dir of its fleet, and this its listen.grpc (by default port %s)?", api.Plain(errors.New(reason)), coordinatorPort)
		}
	}
	// gRPC may get the alert from a read or from a write: see certs.Credentials.
	if _, alert, refused := strings.Cut(strings.TrimSuffix(said, `"`), "remote error: tls: "); refused {
		return fmt.Errorf("it refuses this certificate (%s): is --tls-dir of its fleet, in its time, and not revoked? Its log says what it takes it for", alert)
	}
	if strings.HasPrefix(said, context.DeadlineExceeded.Error()) { // at the start of the message it is of this side's own deadline
		return errHangs
	}
	if strings.HasPrefix(said, "unexpected HTTP status code") {
		return fmt.Errorf("this is a web server: name its listen.grpc (by default port %s)", coordinatorPort)
	}
	return nil
}
