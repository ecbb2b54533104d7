package migration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
)

// silent are disks of which none answers.
type silent struct{ diskio.Disks }

func (silent) Readable(string) bool { return false }

// Time is up in a pass that another one was to follow. It names what it had in its plan, and the pass that follows what is left: each block
// once, and even those that it has no time to meet.
func TestPassNamesWhatItHadInItsPlanWhenTimeIsUp(t *testing.T) {
	const files = 30
	for _, row := range []struct {
		what      string
		meanwhile func(t *testing.T, a *node, next *DrainConfig)
		lost      []string
	}{
		{"all is met", func(*testing.T, *node, *DrainConfig) {}, nil},
		{"a block was written meanwhile", func(t *testing.T, a *node, _ *DrainConfig) {
			write(t, filepath.Join(a.Dir, "cache/new"), make([]byte, 1000))
		}, []string{"cache/-/new"}},
		{"a block has changed", func(t *testing.T, a *node, _ *DrainConfig) {
			write(t, filepath.Join(a.Dir, "cache/f-07"), make([]byte, 2000))
		}, nil},
		{"the disk does not answer any more", func(_ *testing.T, a *node, next *DrainConfig) {
			next.Disks = silent{diskio.OrWell(nil)}
		}, []string{"(what lies in "}},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newNode(t, "a", with(filesStore, "cache"))
				want := row.lost
				for i := range files {
					name := fmt.Sprintf("f-%02d", i)
					write(t, filepath.Join(a.Dir, "cache", name), make([]byte, 1000))
					want = append(want, "cache/-/"+name)
				}
				if err := os.Symlink("f-00", filepath.Join(a.Dir, "cache/link")); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				tr := newTrip(t, a)
				tr.cfg.Once = true
				tr.run(ctx)
				next := newTrip(t, a)
				next.cfg.Late, next.cfg.Unwritten = tr.drain.TimeUp(), tr.drain.Unwritten()
				row.meanwhile(t, a, &next.cfg)
				sum, entries := next.run(ctx)
				var got []string
				for _, e := range outcome(t, entries, manifest.Lost) {
					if !strings.HasPrefix(e.Reason, tooLate) && !strings.HasPrefix(e.ID, "(") {
						t.Errorf("%s is lost for %q", e.ID, e.Reason)
					}
					if id, _, is := strings.Cut(e.ID, a.Dir); is {
						e.ID = id
					}
					got = append(got, e.ID)
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) || sum.Lost.Blocks < files {
					t.Errorf("got %d lost, by name %q, want %q", sum.Lost.Blocks, got, want)
				}
				if met := outcome(t, entries, manifest.Skipped); len(met) > 1 || sum.Skipped.Blocks != int64(len(met)) {
					t.Errorf("got %d skipped, and %d by name, want the link once", sum.Skipped.Blocks, len(met))
				}
			})
		})
	}
}

// A pass that is cut short while there is time names nothing as lost: the one that follows tries all of it.
func TestPassThatIsCutShortNamesNothing(t *testing.T) {
	for what, why := range map[string]error{"for one that takes over": nil, "for its peers are others": errors.New("turned")} {
		synctest.Test(t, func(t *testing.T) {
			a := newNode(t, "a", with(filesStore, "cache"))
			write(t, filepath.Join(a.Dir, "cache/x"), make([]byte, 1000))
			ctx, cut := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cut(why) })
			tr := newTrip(t, a)
			tr.cfg.Once = true
			if sum, entries := tr.run(ctx); sum.Lost.Blocks != 0 || len(entries) != 0 {
				t.Errorf("cut short %s: got %+v, %+v, want nothing named", what, sum, entries)
			}
		})
	}
}

// slowWalk takes a second to come to each file.
type slowWalk struct{ inventory.Layout }

func (w slowWalk) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	return w.Layout.Scan(ctx, s, part, before, func(it inventory.Item, err error) bool {
		time.Sleep(time.Second)
		return ctx.Err() == nil && yield(it, err)
	})
}

// Time is up amid the first look of a pass that another one is to follow. The pass ends at once: the one that follows, which names what it
// meets, needs the moment that is left.
func TestPassLeavesTheNamingToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		for i := range 30 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%02d", i)), make([]byte, 1000))
		}
		a.Stores[0].Shape = slowWalk{a.Stores[0].Shape}
		var said nodetest.Notes
		tr := newTrip(t, a)
		tr.cfg.Once, tr.cfg.Log = true, slog.New(slog.NewTextHandler(&said, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		began := time.Now()
		tr.run(ctx)
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it ended after %v, want no file to be met after the 11 seconds of the one that it was at", took)
		}
		if n := said.Count("not named"); n != 0 {
			t.Errorf("it said %d times that something is not named, which the next pass names", n)
		}
	})
}

// deaf reads no more after the grant.
type deaf struct {
	net.Conn
	reads int
	hang  chan struct{}
}

func (c *deaf) Read(p []byte) (int, error) {
	if c.reads++; c.reads > 1 {
		<-c.hang
	}
	return c.Conn.Read(p)
}

// Time is up while a lane still waits for its receiver to return from a call that hangs. What the lane had sent is named.
func TestLaneThatWaitsForItsReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b := newNode(t, "b")
		b.plain = true
		tr := newTrip(t, a, b)
		hang := make(chan struct{})
		tr.wrap = func(conn net.Conn) net.Conn { return &deaf{Conn: conn, hang: hang} }
		_, entries := tr.run(within(t, 3*time.Second))
		wantLost(t, want, entries, "")
		close(hang)
		synctest.Wait()
	})
}

// Every one of a hundred peers is full. Naming what is lost, which is due within seconds, does not put together what they said for each block.
func TestWhatAllPeersSaidIsPutTogetherOnce(t *testing.T) {
	tr := newTrip(t, newNode(t, "a", with(filesStore, "cache")))
	d := NewDrain(tr.cfg)
	for i := range 100 {
		name := fmt.Sprintf("peer-%02d", i)
		d.peers.known[name] = &peerState{Peer: Peer{Node: name}, trouble: errPeerFull.Error()}
	}
	const blocks = 1000
	for i := range blocks {
		name := fmt.Sprint("f-", i)
		if err := d.plan.Add(t.Context(), inventory.Block{ID: inventory.BlockID("cache/-/" + name), Members: []inventory.Member{{Name: name, Path: name, Bytes: 100}}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d.nameLost(ctx)
	runtime.ReadMemStats(&after)
	if n := (after.Mallocs - before.Mallocs) / blocks; n > 30 {
		t.Errorf("%d allocations for each block", n)
	}
	if sum, _ := d.account.close(); sum.Lost.Blocks < blocks {
		t.Errorf("got %+v, want all of it named", sum.Lost)
	}
	var said string
	for e, err := range d.Entries() {
		if said = e.Reason; err != nil || strings.HasSuffix(e.ID, "/f-0") {
			break
		}
	}
	if want := tooLate + ": peer-00: " + errPeerFull.Error(); !strings.HasPrefix(said, want) {
		t.Errorf("a block is lost for %q, want %q and more", said, want)
	}
}
