package heartbeat

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPlain(t *testing.T) {
	refused := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:7411: connect: connection refused"`)
	foreign := status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: peer claims to be \"coordinator c1\", want \"coordinator c2\""`)
	for want, err := range map[string]error{
		"plain":                        errors.New("plain"),
		"beat: not your node":          fmt.Errorf("beat: %w", status.Error(codes.PermissionDenied, "not your node")),
		"register: connection refused": fmt.Errorf("register: %w", refused),
		`register: no handshake: peer claims to be "coordinator c1", want "coordinator c2"`: fmt.Errorf("register: %w", foreign),
	} {
		if got := plain(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
