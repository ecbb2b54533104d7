package heartbeat

import (
	"errors"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// plain is an error as a person should read it: without the three layers that gRPC wraps around what a coordinator or the
// network said. It is for logs and tables; nothing branches on it.
func plain(err error) string {
	text := err.Error()
	inner, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !ok {
		return text
	}
	return strings.Replace(text, inner.Error(), api.Why(inner), 1)
}

// plainError is an error in plain words that keeps its gRPC status: a reader of blocks may be told what a call returns.
type plainError struct{ error }

func (e plainError) Error() string { return plain(e.error) }
func (e plainError) Unwrap() error { return e.error }
