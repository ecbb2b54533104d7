package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that accepts a connection and then hangs has the right certificate and port: the error does not send people to check those.
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
		{codes.Unavailable, "keepalive ping failed to receive ACK within timeout", errHangs.Error()},
		{codes.DeadlineExceeded, "nothing was taken for 30s", "nothing was taken for 30s"},
		{codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: expired"`, "no handshake: tls: expired: is --tls-dir of its fleet"},
		{codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: EOF"`, "no handshake: it closes the connection: is --tls-dir of its fleet"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: bad certificate"`, "it refuses this certificate (bad certificate): is --tls-dir of its fleet, in its time, and not revoked?"},
	} {
		got := (&link{whom: "coordinator c1:7411"}).rpcError("list nodes", status.Error(c.code, c.said)).Error()
		if !strings.HasPrefix(got, "list nodes: coordinator c1:7411: "+c.want) {
			t.Errorf("of %q: got %q", c.said, got)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Output that could not be written is a failure, of a verb, of cobra's help and of its completion.
func TestOutputThatIsNotWrittenIsAFailure(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(file, []byte("coordinators: [\"127.0.0.1:7411\"]\ntls: {dev_insecure: true}\nlisten: {peer: \"127.0.0.1:7412\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{
		{"--help"}, {"help", "nodes"}, {"nodes", "--help"}, {"--version"}, {"version"}, {"version", "-o", "json"}, {"completion", "bash"},
		{"config", "check", file}, {"tls", "init", "--dir", filepath.Join(dir, "pki")},
	} {
		var said strings.Builder
		if got := run(t.Context(), verb, full{}, &said); got != exitFailed || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("%q: got exit code %d, %q", verb, got, said.String())
		}
	}
}
