package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

// If there was no time to tell all peers which copies are out of date, each look goes on with that, and it is logged once.
func TestLookoutGoesOnToldWhatToForget(t *testing.T) {
	var said bytes.Buffer
	v := &lookout{vigil: &vigil{course: &course{log: slog.New(slog.NewTextHandler(&said, nil))}}}
	looks, short := 0, 2
	tell := func(context.Context) ([]string, error) {
		if looks++; looks <= short {
			return nil, errors.New("no time for more")
		}
		return []string{"b"}, nil
	}
	v.forget(t.Context(), true, fates{}, tell)
	for range 4 {
		v.forget(t.Context(), false, fates{gone: []string{"b"}}, tell)
	}
	if n := strings.Count(said.String(), "not all peers could be told yet"); looks != short+1 || n != 1 {
		t.Errorf("%d looks and %d lines in the log, want %d and 1: %s", looks, n, short+1, said.String())
	}
	v.forget(t.Context(), false, fates{}, tell) // b is back
	if looks != short+2 {
		t.Errorf("%d looks once who was away is back, want %d", looks, short+2)
	}
}

// A pass that is left behind with a hung disk has not asked about the blocks that are held no more. The next one asks.
func TestDoubtOutlastsAPassThatIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	writes(t, dir, movedName, `{"id":"cache/-/one","bytes":10,"outcome":"moved","peer":"b","version":"@1"}`+"\n")
	synctest.Test(t, func(t *testing.T) {
		nobody, err := heartbeat.New(heartbeat.Config{
			Node: "a", Incarnation: "1", Coordinators: []string{"10.0.0.1:7411"}, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
		})
		if err != nil {
			t.Fatal(err)
		}
		v := &vigil{course: &course{log: slog.New(slog.DiscardHandler), fleet: &fleet{Client: nobody}}}
		v.turn("inc-1")
		v.doubt()
		pass, leave := context.WithCancelCause(t.Context())
		if q := v.before(pass, "inc-1", dir); !q.doubt || q.none {
			t.Fatalf("got %+v, want a question about all blocks", q)
		}
		leave(errLeft)
		synctest.Wait()
		if _, doubt := v.asksAll(0); !doubt {
			t.Error("nobody asks any more")
		}
	})
}

// The disk hangs from which the account of a drain is read, and the notice is withdrawn: the look for what peers still have is over, too.
func TestLookoutDoesNotOutlastItsNotice(t *testing.T) {
	a, _ := inRefuge(t, t.TempDir(), disks.Healthy)
	home := a.incidents.Dir("inc-1")
	moved := filepath.Join(home, movedName)
	if err := errors.Join(os.MkdirAll(home, 0o700), unix.Mkfifo(moved, 0o600)); err != nil { // to open one that nobody writes to hangs
		t.Skipf("no pipe to hang on: %v", err)
	}
	v := &lookout{vigil: &vigil{course: &course{log: a.log, refuge: a.refuge}}}
	ctx, withdraw := context.WithCancel(t.Context())
	withdraw()
	over := make(chan struct{})
	go func() {
		defer close(over)
		p := page{Incident: preemption.Incident{ID: "inc-1"}, Work: work{Drained: &manifest.Summary{Finished: time.Now()}}}
		if q := v.finds(ctx, p); q != nil {
			t.Errorf("got %+v", q)
		}
	}()
	select {
	case <-over:
	case <-time.After(5 * time.Second):
		t.Error("it waits for the disk")
	}
	if f, err := os.OpenFile(moved, os.O_RDWR, 0); err == nil { // nothing is to hang beyond the test
		f.Close()
	}
}
