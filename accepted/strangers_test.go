package accepted

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// closing tells when it is closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// While a request is answered its connection is nobody's to close; before and after that the oldest goes.
func TestStrangersAreThoseWhoAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Strangers
		var all []*closing
		for range mostStrangers + 2 {
			all = append(all, &closing{})
		}
		want := func(closed ...int) {
			t.Helper()
			synctest.Wait()
			for i, c := range all {
				is := false
				for _, n := range closed {
					is = is || i == n
				}
				if c.closed != is {
					t.Errorf("connection %d: closed is %t, want %t", i, c.closed, is)
				}
			}
		}
		for _, c := range all[:mostStrangers] {
			s.Note(c, http.StateNew)
		}
		s.Note(all[0], http.StateActive)
		s.Note(all[mostStrangers], http.StateNew)
		want()
		s.Note(all[mostStrangers+1], http.StateNew)
		want(1)
		s.Note(all[0], http.StateIdle)
		want(1, 2)
		s.Note(all[3], http.StateClosed)
		s.Note(all[2], http.StateClosed)
		s.Enter(&closing{})
		want(1, 2)
		if n := s.order.Len(); n != mostStrangers || len(s.here) != n {
			t.Errorf("%d are kept in order and %d by connection, want %d", n, len(s.here), mostStrangers)
		}
	})
}
