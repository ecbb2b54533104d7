package api

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What an operator reads of a connection that came to nothing has no words of Go in it.
func TestPlainWords(t *testing.T) {
	for said, want := range map[string]string{
		"EOF": "it closes the connection",
		"read tcp 127.0.0.1:41964->127.0.0.1:18002: read: connection reset by peer":                    "it closes the connection",
		"write tcp [::1]:41964->[::1]:18002: write: broken pipe":                                       "it closes the connection",
		"dial tcp 10.0.0.1:7411: connect: connection refused":                                          "connection refused",
		"dial tcp [fe80::1%eth0]:7411: connect: no route to host":                                      "no route to host",
		"dial tcp 10.0.0.1:7411: i/o timeout":                                                          "no answer in time",
		"context deadline exceeded":                                                                    "no answer in time",
		"context deadline exceeded while waiting for connections to become ready":                      "no answer in time",
		"dial tcp: lookup c1.example on 10.0.0.2:53: no such host":                                     "no host of the name c1.example is known",
		"dial tcp: lookup c1.example: i/o timeout":                                                     "lookup c1.example: i/o timeout",
		"tls: first record does not look like a TLS handshake":                                         "it speaks no TLS",
		"remote error: tls: bad certificate":                                                           "it refuses this certificate (bad certificate)",
		"remote error: tls: no application protocol":                                                   "it speaks another protocol",
		"authentication handshake failed: EOF":                                                         "no handshake: it closes the connection",
		"authentication handshake failed: certificate is not signed by our CA":                         "no handshake: certificate is not signed by our CA",
		"error reading server preface: raw-read unix @->/run/a.sock: use of closed network connection": "no answer in time",
		"unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/plain\"\ndata: \"404 page not found\\n\"": "it answers as a web server does: 404 (Not Found)",
		"host-b: dial tcp 10.0.0.1:7412: connect: connection refused": "host-b: dial tcp 10.0.0.1:7412: connect: connection refused", // the word of a node
		"node \"x\" is not known here":                                "node \"x\" is not known here",
	} {
		if got := Plain(errors.New(said)).Error(); got != want {
			t.Errorf("of %q: got %q, want %q", said, got, want)
		}
	}
	if !errors.Is(Plain(io.EOF), io.EOF) {
		t.Error("an error in plain words is another error")
	}
	err := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:7411: connect: connection refused"`)
	if got, want := Why(err), "connection refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
