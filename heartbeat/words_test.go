package heartbeat

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestWords(t *testing.T) {
	refused := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:7411: connect: connection refused"`)
	for want, err := range map[string]error{
		"plain":               errors.New("plain"),
		"beat: not your node": fmt.Errorf("beat: %w", status.Error(codes.PermissionDenied, "not your node")),
		"register: dial tcp 10.0.0.1:7411: connect: connection refused": fmt.Errorf("register: %w", refused),
	} {
		if got := words(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
