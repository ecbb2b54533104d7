package certs

import (
	"crypto/tls"
	"net"
	"strings"
	"syscall"
	"testing"
)

// A refused client gets the reason from its next read or write, even if the connection is gone by then.
func TestWhoIsRefusedIsTold(t *testing.T) {
	ours, theirs := newCADir(t), newCADir(t)
	server := issueFor(t, ours, Name{RoleCoordinator, "c1"})
	stranger := issueFor(t, theirs, Name{RoleNode, "host-a"})
	config := stranger.Client([]string{"h2"}, Name{Role: RoleCoordinator})
	config.VerifyConnection = func(tls.ConnectionState) error { return nil } // it believes anybody
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			conn := tls.Server(raw, server.Server([]string{"h2"}, RoleNode))
			err = conn.Handshake()
			conn.Close()
		}
		refused <- err
	}()
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := Credentials(config).Clone().ClientHandshake(t.Context(), "c1", broken{raw, new(bool)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-refused; err == nil {
		t.Fatal("the server lets it in")
	}
	*conn.(attentive).Conn.(interface{ NetConn() net.Conn }).NetConn().(broken).now = true
	if _, err := conn.Write([]byte("x")); err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
		t.Errorf("got %v, want the alert", err)
	}
}

// broken is a connection that the other side has closed: nothing can be written once that is known here.
type broken struct {
	net.Conn
	now *bool
}

func (b broken) Write(p []byte) (int, error) {
	if *b.now {
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	return b.Conn.Write(p)
}
