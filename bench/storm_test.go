package main

import (
	"context"
	"net"
	"testing"
	"time"
)

// A connection takes a slot until its handshake is over, which its second write ends, or until it is closed.
func TestFewShakeHandsAtATime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := calmly(1)
	first, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	one := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err := dial(ctx, "tcp", l.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err
	}
	for range 2 {
		if one(time.Millisecond) == nil {
			t.Fatal("a second one was let in while the first shakes hands")
		}
		if _, err := first.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // closing frees the slot as well
		if err := one(time.Minute); err != nil {
			t.Error(err)
		}
	}
}
