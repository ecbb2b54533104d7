package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials are gRPC's credentials for a client, with one addition: a client that the server refuses learns why.
//
// In TLS 1.3 a client is done with the handshake before the server has checked its certificate (RFC 8446, 2). The server refuses with an
// alert and closes the connection. If the client writes before it has read the alert, the write may fail with a broken pipe, and
// then nobody learns that the certificate was refused.
func Credentials(config *tls.Config) credentials.TransportCredentials {
	return client{credentials.NewTLS(config)}
}

type client struct {
	credentials.TransportCredentials
}

func (c client) Clone() credentials.TransportCredentials {
	return client{c.TransportCredentials.Clone()}
}

func (c client) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return attentive{conn}, info, nil
}

// attentive is a connection that looks for an alert of the peer when a write fails.
type attentive struct{ net.Conn }

// lastWords bounds the wait for the alert. It has arrived already: a peer sends it before it closes its end.
const lastWords = 100 * time.Millisecond

func (a attentive) Write(p []byte) (int, error) {
	n, err := a.Conn.Write(p)
	if err == nil || a.SetReadDeadline(time.Now().Add(lastWords)) != nil {
		return n, err
	}
	_, said := a.Read(make([]byte, 1)) // crypto/tls returns an alert to every read, so a concurrent reader loses nothing
	if alert, is := errors.AsType[*net.OpError](said); is && alert.Op == "remote error" {
		return n, alert
	}
	return n, err
}
