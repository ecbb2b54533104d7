package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials are gRPC's own for a client, but for one thing: who is refused is told so.
//
// In TLS 1.3 a client is done with the handshake before the server has looked at its certificate (RFC 8446, 2). A refusal is an alert
// that lies there to be read, and the connection is closed. Whether a client that writes then hears of the alert or of a broken pipe
// is a matter of who was faster, and in the second case nobody learns that it is the certificate.
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

// attentive reads the last words of a peer to whom nothing can be written any more.
type attentive struct{ net.Conn }

// lastWords bounds the wait for what has arrived already: a peer that closes its end has said it before.
const lastWords = 100 * time.Millisecond

func (a attentive) Write(p []byte) (int, error) {
	n, err := a.Conn.Write(p)
	if err == nil || a.SetReadDeadline(time.Now().Add(lastWords)) != nil {
		return n, err
	}
	_, said := a.Read(make([]byte, 1)) // whoever reads beside this one gets the same word
	if alert, is := errors.AsType[*net.OpError](said); is && alert.Op == "remote error" {
		return n, alert
	}
	return n, err
}
