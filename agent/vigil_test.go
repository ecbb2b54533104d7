package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/pipenet"
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

// The disk hangs from which the account of a drain is read, and the notice is withdrawn: the look for what peers still have is
// over, too.
func TestLookoutDoesNotOutlastItsNotice(t *testing.T) {
	a, _ := inRefuge(t, t.TempDir(), disks.Healthy)
	hangs(t, filepath.Join(a.incidents.Dir("inc-1"), movedName))
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
}

// lapsing is a coordinator that says how many blocks have lapsed.
type lapsing struct {
	api.UnimplementedMembershipServer
	lapses atomic.Uint64
}

func (k *lapsing) Register(context.Context, *api.RegisterRequest) (*api.RegisterReply, error) {
	return &api.RegisterReply{}, nil
}

func (k *lapsing) Heartbeat(context.Context, *api.HeartbeatRequest) (*api.HeartbeatReply, error) {
	return &api.HeartbeatReply{Lapses: k.lapses.Load()}, nil
}

// The coordinator says that blocks are held no more while the node goes over from copying ahead to a drain.
func TestLapseBetweenTwoLookouts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, _ := inRefuge(t, dir, disks.Healthy)
		l, server, co := pipenet.Listen(), grpc.NewServer(), new(lapsing)
		api.RegisterMembershipServer(server, co)
		go server.Serve(l)
		defer server.Stop()
		client, err := heartbeat.New(heartbeat.Config{Node: "a", Incarnation: "1", Coordinators: []string{"10.0.0.1:7411"}, Dial: l.Dial})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var beating sync.WaitGroup
		beating.Go(func() { client.Run(ctx) })
		defer beating.Wait()
		defer stop()
		a.course = course{log: a.log, incidents: &a.incidents, limits: &a.limits, fleet: &fleet{Client: client}, disks: &a.disks, refuge: a.refuge, written: make(chan page)}
		a.course.vigil.course = &a.course
		lookout := func() (end func()) {
			looking, stop := context.WithCancel(ctx)
			var over sync.WaitGroup
			over.Go(func() { a.course.carryAgain(looking) })
			synctest.Wait()
			return func() { stop(); over.Wait() }
		}
		lookout()()
		co.lapses.Store(7)
		time.Sleep(time.Minute)
		lookout()()
		if _, doubt := a.course.vigil.asksAll(0); !doubt {
			t.Error("the second does not know of it")
		}
	})
}
