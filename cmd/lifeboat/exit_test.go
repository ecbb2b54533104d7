package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Who takes a connection and then says nothing has a right certificate and a right port: the words send nobody to look at those.
func TestWhoHangsIsSaidToHang(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		said string
		want string
	}{
		{codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: context deadline exceeded"`, errHangs.Error()},
		{codes.DeadlineExceeded, "context deadline exceeded while waiting for connections to become ready", errHangs.Error()},
		{codes.DeadlineExceeded, "context deadline exceeded", errHangs.Error()},
		{codes.Unavailable, `connection error: desc = "error reading server preface: raw-read unix @->/run/lifeboat/agent.sock: use of closed network connection"`, errHangs.Error()},
		{codes.DeadlineExceeded, "nothing was taken for 30s", "nothing was taken for 30s"},
		{codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: expired"`, "no handshake: tls: expired: is --tls-dir of its fleet"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: bad certificate"`, "it refuses this certificate (bad certificate): is --tls-dir of its fleet"},
	} {
		got := (&link{whom: "coordinator c1:7411"}).rpcError("list nodes", status.Error(c.code, c.said)).Error()
		if !strings.HasPrefix(got, "list nodes: coordinator c1:7411: "+c.want) {
			t.Errorf("of %q: got %q", c.said, got)
		}
	}
}
