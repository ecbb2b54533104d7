package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
)

// A closed Conn dials nobody any more: a loop over events ends, and a call is refused.
func TestClosedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a")
		c.elect("a")
		asked := 0
		c.there["a"].events = func(_ *api.EventsRequest, stream grpc.ServerStreamingServer[api.Event]) error {
			asked++
			if err := stream.Send(&api.Event{Term: 1, Index: 1}); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		}
		conn, _ := c.conn(t, "a")
		const open = 20 * time.Second
		time.AfterFunc(open, func() { conn.Close() })
		var last error
		began := time.Now()
		for _, err := range conn.Events(t.Context(), Place{}, Filter{}) {
			last = err
		}
		if took := time.Since(began); took > open+time.Second || !errors.Is(last, errClosed) || asked != 1 {
			t.Errorf("ended after %s with %v, asked %d times, want a moment after it was closed, with that, asked once", took, last, asked)
		}
		if _, err := conn.Node(t.Context(), "n"); !errors.Is(err, errClosed) {
			t.Errorf("a call on what is closed: got %v", err)
		}
	})
}
