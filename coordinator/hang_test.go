package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A disk that hangs is told of, and keeps no caller: what it was to write would be waited for without end.
func TestDiskThatHangsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
		defer l.Close()
		f := &fleet{ledger: l, log: slog.New(slog.NewTextHandler(&said, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- f.watchDisk(ctx) }()
		ready := func() int {
			w := httptest.NewRecorder()
			(&web{fleet: f}).ready(w, nil)
			return w.Code
		}
		thaw, thawed := make(chan bool), make(chan error, 1)
		go func() {
			thawed <- l.store.update(func(*bolt.Tx) error { <-thaw; return nil })
		}()
		time.Sleep(hangAfter / 2)
		if err := l.store.hangs(); err != nil || ready() != http.StatusOK {
			t.Errorf("got %v, want nothing said of a slow disk", err)
		}
		time.Sleep(hangAfter + hangPace)
		if _, err := l.do(registration("a")); !errors.Is(err, errNoLog) {
			t.Errorf("got %v, want %v", err, errNoLog)
		}
		if l.store.hangs() == nil || ready() != http.StatusServiceUnavailable {
			t.Error("a coordinator that decides nothing is said to be ready")
		}
		close(thaw)
		if err := <-thawed; err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * hangPace)
		if _, err := l.do(registration("a")); err != nil || ready() != http.StatusOK {
			t.Errorf("the disk is well again: %v", err)
		}
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		if got := said.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "hangs") || !strings.Contains(got, "answers again") {
			t.Errorf("got %q, want a line when it hangs and one when it does no more", got)
		}
	})
}
