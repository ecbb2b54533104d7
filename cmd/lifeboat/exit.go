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

// exitError is an error that knows what the process should say of it to its caller.
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

// rpcError says what was asked of whom, and turns the answer's code into ours.
func (l *link) rpcError(asked string, err error) error {
	s := status.Convert(err)
	err = fmt.Errorf("%s: %s: %s", asked, l.answered(s.Code()), s.Message())
	switch s.Code() {
	case codes.NotFound:
		return &exitError{exitNotFound, err}
	case codes.InvalidArgument:
		return &exitError{exitUsage, err}
	case codes.Unavailable, codes.DeadlineExceeded:
		// gRPC's own words bury the reason under three layers of its plumbing.
		if dial := l.dialError(); dial != nil {
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

// answered is who of those that were asked has given an answer; where none did, all of them.
func (l *link) answered(code codes.Code) string {
	if c, several := l.conn.(*client.Conn); several && code != codes.Unavailable && code != codes.DeadlineExceeded {
		return "coordinator " + c.Address()
	}
	return l.whom
}

// errHangs is what is said of somebody who is there and has no answer.
var errHangs = errors.New("no answer in time, though connections are taken: it may hang, see its log")

// unacknowledged is how gRPC says that whoever answers pings no longer does.
const unacknowledged = "keepalive ping failed to receive ACK within timeout"

// notOurs puts into plain words what gRPC says of somebody who is no coordinator, or not of this fleet: nil when it says
// something else. It is for people; nothing branches on it.
func notOurs(said string) error {
	if strings.Contains(said, unacknowledged) {
		return errHangs
	}
	if quoted, ok := strings.CutPrefix(said, "connection error: desc = "); ok {
		why, err := strconv.Unquote(quoted)
		reason, shake := strings.CutPrefix(why, "transport: authentication handshake failed: ")
		preface, silent := strings.CutPrefix(why, "error reading server preface: ")
		if reason == context.DeadlineExceeded.Error() || silent && strings.HasSuffix(preface, net.ErrClosed.Error()) { // closed by this side
			return errHangs
		}
		if err == nil && shake {
			return fmt.Errorf("no handshake: %s: is --tls-dir of its fleet, and this its listen.grpc (by default port %s)?", reason, coordinatorPort)
		}
	}
	// As gRPC reads or writes, whichever comes first: see certs.Credentials.
	if _, alert, refused := strings.Cut(strings.TrimSuffix(said, `"`), "remote error: tls: "); refused {
		return fmt.Errorf("it refuses this certificate (%s): is --tls-dir of its fleet, and in its time? Its log says what it takes it for", alert)
	}
	if strings.HasPrefix(said, context.DeadlineExceeded.Error()) { // this side's word, and not the other's of its own trouble
		return errHangs
	}
	if strings.HasPrefix(said, "unexpected HTTP status code") {
		return fmt.Errorf("this is a web server: name its listen.grpc (by default port %s)", coordinatorPort)
	}
	return nil
}
