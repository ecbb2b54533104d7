package clustertest

import (
	"errors"
	"os"
	"testing"
	"time"
)

// A killed process says nothing more: when its listeners close, which it would notice, it has no connection left.
func TestCrashEndsConnectionsBeforeListeners(t *testing.T) {
	n := newNetwork()
	killed, other := n.attach("killed", "10.0.0.1"), n.attach("other", "10.0.0.2")
	own, err := killed.Listen("tcp", "10.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Listen("tcp", "10.0.0.2:1"); err != nil {
		t.Fatal(err)
	}
	conn, err := killed.Dial(t.Context(), "tcp", "10.0.0.2:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	l := own.(*listener)
	l.mu.Lock() // it cannot close for now
	crashed := make(chan struct{})
	go func() {
		killed.crash()
		close(crashed)
	}()
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection waits for the listener's end")
	}
	l.mu.Unlock()
	<-crashed
}
