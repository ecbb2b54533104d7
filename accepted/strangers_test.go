package accepted

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// closing tells when it is closed.
type closing struct {
	net.Conn
	closed bool
}

func (*closing) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7412} }
func (*closing) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 40_000} }

func (c *closing) Close() error { c.closed = true; return nil }

// While a request is answered its connection is nobody's to close; before and after that the oldest goes.
func TestStrangersAreThoseWhoAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStrangers(slog.New(slog.DiscardHandler))
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

// That some were ended is in the log, once a minute at most: who runs the daemon is told, and who connects fills no disk.
func TestLogTellsThatStrangersAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := NewStrangers(slog.New(slog.NewTextHandler(&said, nil)))
		for _, c := range []struct {
			come int
			want string
		}{
			{mostStrangers, ""},
			{1, "at=10.0.0.1:7412 peer=10.0.0.2:40000 times=1 "},
			{99, ""},
			{1, "times=100 "},
		} {
			said.Reset()
			for range c.come {
				s.Enter(&closing{})
			}
			if got := said.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
				t.Errorf("%d more: got %q, want %q", c.come, got, c.want)
			}
			if c.come == 99 {
				time.Sleep(strangersEvery)
			}
		}
	})
}
