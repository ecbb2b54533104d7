package migration

import (
	"context"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// The deadline comes nearer, and the block that is worth most no longer fits into the time that is left. It is broken off as soon as that
// is known, and blocks that fit are sent instead.
func TestBlockThatCannotFinishLeavesItsTimeToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := with(filesStore, "cache")
		store.Hints = []inventory.Hint{{Match: "huge", Value: 100 * time.Hour}}
		a := newNode(t, "a", store)
		write(t, filepath.Join(a.Dir, "cache", "huge"), make([]byte, 40<<20))
		for i := range 5 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("small-%d", i)), contentOf(fmt.Sprint(i), 1<<20))
		}
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond, tr.cfg.Connections = 1<<20, 1
		began := time.Now()
		tr.cfg.Until = func() time.Time {
			if time.Since(began) < time.Second {
				return began.Add(time.Minute)
			}
			return began.Add(10 * time.Second)
		}
		sum, entries := tr.run(within(t, 10*time.Second))
		if sum.Moved.Blocks != 5 || sum.Lost.Blocks != 1 {
			t.Errorf("got %+v, want the five that fit moved and one lost", sum)
		}
		wantLost(t, map[string][]byte{"cache/-/huge": nil}, entries, plan.ErrNoTime.Error())
	})
}

// Near the end no block is begun that the deadline would cut off: everything that is sent counts.
func TestNearTheEndSmallBlocksFillTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := with(filesStore, "cache")
		store.Hints = []inventory.Hint{{Match: "large-*", Value: time.Hour}, {Match: "small-*", Value: time.Millisecond}}
		a := newNode(t, "a", store)
		for i := range 10 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("large-%d", i)), contentOf(fmt.Sprint("l", i), 3<<20))
		}
		for i := range 40 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("small-%02d", i)), contentOf(fmt.Sprint("s", i), 100<<10))
		}
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond, tr.cfg.Connections = 1<<20, 1
		sum, entries := tr.run(within(t, 11*time.Second)) // three large ones take 9 s
		large := 0
		for i := range 10 {
			if _, ok := outcome(t, entries, manifest.Moved)[fmt.Sprintf("cache/-/large-%d", i)]; ok {
				large++
			}
		}
		if small := int(sum.Moved.Blocks) - large; large != 3 || small < 8 {
			t.Errorf("%d large and %d small blocks moved, want 3, and the rest of the time filled", large, small)
		}
	})
}

func TestPace(t *testing.T) {
	now := time.Now()
	until := now.Add(10 * time.Second)
	var p pace
	if got := p.affordable(now, until, 0, 0); got != math.MaxInt64 {
		t.Errorf("with nothing known %d may be begun, want anything", got)
	}
	if got := p.affordable(now, until, 1000, 1e6); got != 9e6-1000 {
		t.Errorf("at an assumed MB/s for 10 s: got %d, want 9 MB less what is ahead", got)
	}
	p.start(now)
	for range 20 {
		now = now.Add(100 * time.Millisecond)
		p.carried(now, 200_000)
	}
	if got := p.affordable(now, until, 0, 1e9); got < 14.3e6 || got > 14.5e6 {
		t.Errorf("at 2 MB/s with 8 s left: got %d, want 14.4 MB", got)
	}
	if p.hopeless(now, until, 20e6) || !p.hopeless(now, until, 25e6) {
		t.Error("at 2 MB/s with 8 s left 20 MB are worth a try, 25 MB are not")
	}
	p.rest()
	now = now.Add(5 * time.Second)
	p.carried(now, 1)
	if p.rate < 1.9e6 {
		t.Errorf("a rest made %.0f of 2 MB/s", p.rate)
	}
	if got := p.affordable(until, until, 0, 0); got > 0 {
		t.Errorf("%d may be begun when the time is over", got)
	}
}

// A connection is slow at first, after a rest. No block is given up for that.
func TestSlowStartOfALaneCostsNoBlock(t *testing.T) {
	now := time.Now()
	until := now.Add(10 * time.Second)
	var p pace
	p.start(now)
	for step := range 10 {
		now = now.Add(100 * time.Millisecond)
		p.carried(now, 50_000)
		if got, want := p.hopeless(now, until, 10e6), step == 9; got != want {
			t.Errorf("after %d ms at 0.5 MB/s 10 MB are hopeless: %t, want %t", 100*(step+1), got, want)
		}
	}
}

// toFour is a trip of that many large blocks to four peers.
func toFour(t *testing.T, blocks, mib int) *trip { return toMany(t, 4, blocks, mib) }

func toMany(t *testing.T, peers, blocks, mib int) *trip {
	t.Helper()
	a := newNode(t, "a", with(filesStore, "cache"))
	for i := range blocks {
		write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), mib<<20))
	}
	var others []*node
	for i := range peers {
		others = append(others, newNode(t, string(rune('b'+i))))
	}
	return newTrip(t, a, others...)
}

// Lanes to several peers share a cap. Together they begin no more blocks than the cap lets through in time. If each began a large one, none
// would be there in time.
func TestLanesShareTheTimeThatACapLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := toFour(t, 6, 10)
		tr.cfg.MaxBytesPerSecond = 2 << 20
		sum, entries := tr.run(within(t, 25*time.Second))
		if sum.Moved.Blocks != 4 {
			t.Errorf("got %+v, want four: five would take all of the time\n%+v", sum, entries)
		}
	})
}

// A lane has had half of a cap. Near the end it may begin what it can send with the whole cap.
func TestLastLaneHasAllOfTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		for i := range 10 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), 3<<20))
		}
		tr := newTrip(t, a, newNode(t, "b"))
		tr.cfg.MaxBytesPerSecond, tr.cfg.Connections = 1<<20, 2
		sum, _ := tr.run(within(t, 10500*time.Millisecond)) // two at once take 6 s, a third alone takes 3
		if sum.Moved.Blocks != 3 {
			t.Errorf("got %+v, want three moved", sum)
		}
	})
}

// narrowLink is the link of a node that leaves: all of its connections share it.
type narrowLink struct {
	net.Conn
	link *rate.Limiter
}

func (c narrowLink) Write(p []byte) (n int, err error) {
	for n < len(p) {
		some := min(len(p)-n, 16<<10)
		if err := c.link.WaitN(context.Background(), some); err != nil {
			return n, err
		}
		wrote, err := c.Conn.Write(p[n : n+some])
		if n += wrote; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Lanes to several peers share a link. Together they go on with as many blocks as the link carries in time. If each went on with one, none
// would be there in time.
func TestLanesShareTheTimeThatALinkLeaves(t *testing.T) {
	for _, row := range []struct{ blocks, mib, want int }{
		{6, 10, 5},  // all six are 60 MiB of the 57 that the link carries
		{40, 3, 17}, // 8 lanes at once: twice 24 MiB, and 9 are left
		{8, 20, 2},
		{12, 8, 7}, // 56 MiB: the last of them is begun early, and has its turn late
	} {
		t.Run(fmt.Sprintf("%d of %d MiB", row.blocks, row.mib), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := toFour(t, row.blocks, row.mib)
				link := rate.NewLimiter(57<<20/25, 16<<10)
				tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
				sum, _ := tr.run(within(t, 25*time.Second))
				if sum.Moved.Blocks < int64(row.want) {
					t.Errorf("got %+v, want %d moved", sum, row.want)
				}
				if vain := tr.drain.out.sent.Load() - sum.Moved.Bytes; vain > 6<<20 {
					t.Errorf("%d bytes were sent in vain", vain)
				}
			})
		})
	}
}

// Among equal lanes, each that looks has the least left, because it has just written. The lane that began first goes first all the same,
// until another has clearly less left.
func TestEqualLanesKeepTheirTurns(t *testing.T) {
	var link traffic
	lanes := []*load{{}, {}, {}}
	for _, l := range lanes {
		link.pledge(l, 20<<20)
	}
	wrote := func(l *load, n int64) (ahead int64) {
		link.carried(l, time.Now(), n)
		return link.ahead(l)
	}
	for i, l := range slices.Backward(lanes) {
		if got, want := wrote(l, wire.ChunkBytes), int64(i)*20<<20; got != want {
			t.Errorf("lane %d has %d bytes before it, want %d", i, got, want)
		}
	}
	if got := wrote(lanes[2], clearly+wire.ChunkBytes); got != 0 {
		t.Errorf("a lane with clearly less left has %d bytes before it", got)
	}
	link.pledge(lanes[2], 0)
	link.pledge(lanes[2], 20<<20-wire.ChunkBytes)
	if got, want := link.ahead(lanes[2]), int64(2*(20<<20-wire.ChunkBytes)); got != want {
		t.Errorf("a lane that began anew has %d bytes before it, want %d", got, want)
	}
}

// While a peer takes nothing, the block that was begun for it delays no other lane. Once the peer takes something again, the rest of the
// block counts as before, and has its turn.
func TestWhatASilentPeerHasHalfOfCountsOnceItIsHeardAgain(t *testing.T) {
	var link traffic
	silent, other := &load{}, &load{}
	want := func(when string, pledged, before int64) {
		t.Helper()
		if got := link.ahead(other); link.pledged != pledged || got != before {
			t.Errorf("%s: %d bytes were begun, and %d go before, want %d and %d", when, link.pledged, got, pledged, before)
		}
	}
	for _, l := range []*load{silent, other} {
		link.work(l, true)
		link.pledge(l, 20<<20)
	}
	want("both take", 40<<20, 20<<20)
	link.quiet(silent, true)
	want("one is silent", 20<<20, 0)
	link.carried(silent, time.Now(), 15<<20) // it was under way
	want("one is silent still", 20<<20, 0)
	link.quiet(silent, false)
	want("both take again", 25<<20, 5<<20)
	link.pledge(silent, 0)
	want("one is done", 20<<20, 0)
}

// What lanes carry varies around a mean. That must not make the link look faster, even when fewer lanes work.
func TestNoiseDoesNotMakeALinkFaster(t *testing.T) {
	now, l := time.Now(), &load{}
	var link traffic
	link.working = 9
	carry := func(bytes int64) {
		now = now.Add(paceStep)
		link.carried(l, now, bytes)
	}
	link.carried(l, now, 0)
	for range 10 {
		carry(480_000)
	}
	link.working--
	link.hold(1)
	for range 50 {
		carry(200_000)
		carry(760_000)
	}
	if link.rate < 2.2e6 || link.rate > 2.5e6 {
		t.Errorf("2.4 MB/s are taken for %.2f", link.rate/1e6)
	}
	link.working -= 6
	for range 20 {
		carry(200_000)
	}
	if link.rate < 2e6 {
		t.Errorf("since one lane of nine carries 1 MB/s, what they can carry is taken for %.2f", link.rate/1e6)
	}
}

// Of eight peers over one link some are tried and let go, because they make nothing faster. The blocks that they were sent until then
// count.
func TestPeersThatAreLetGoKeepWhatTheyHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := toMany(t, 8, 12, 4)
		link := rate.NewLimiter(57<<20/25, 16<<10)
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		sum, entries := tr.run(within(t, 25*time.Second))
		if sum.Moved.Blocks != 12 {
			t.Errorf("got %+v, want all moved: 48 MiB of the 57 that the link carries\n%+v", sum, entries)
		}
		if vain := tr.drain.out.sent.Load() - sum.Moved.Bytes; vain > 0 {
			t.Errorf("%d bytes were sent in vain", vain)
		}
	})
}

// In its first second a link carries less than it can. No block is given back for that.
func TestSlowStartOfALinkCostsNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := toFour(t, 8, 25)
		const full = 57 << 20 / 25
		link := rate.NewLimiter(full*7/10, 16<<10)
		time.AfterFunc(1500*time.Millisecond, func() { link.SetLimit(full) })
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, link} }
		sum, _ := tr.run(within(t, 25*time.Second))
		if sum.Moved.Blocks != 2 {
			t.Errorf("got %+v, want two moved: 50 MiB of the 56 that the link carries", sum)
		}
		if vain := tr.drain.out.sent.Load() - sum.Moved.Bytes; vain > 6<<20 {
			t.Errorf("%d bytes were sent in vain", vain)
		}
	})
}

// stallingConn is a connection that takes nothing more until it is closed, if it is the first to have taken that much.
type stallingConn struct {
	net.Conn
	left    int
	stalled *atomic.Bool
	closed  context.Context
	close   context.CancelFunc
}

func (c *stallingConn) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 && c.stalled.CompareAndSwap(false, true) {
		<-c.closed.Done()
	}
	return c.Conn.Write(p)
}

func (c *stallingConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// The lane that should go first stalls, because its peer takes nothing. The lanes that hold back for it then use the link.
func TestLaneThatHoldsGoesOnWhenTheFirstStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		for i := range 2 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), 12<<20))
		}
		tr := newTrip(t, a, newNode(t, "b"), newNode(t, "c"))
		tr.cfg.Connections = 1
		link, stalled := rate.NewLimiter(1<<20, 16<<10), &atomic.Bool{}
		tr.wrap = func(conn net.Conn) net.Conn {
			closed, closeIt := context.WithCancel(t.Context())
			return narrowLink{&stallingConn{conn, 3 << 20, stalled, closed, closeIt}, link}
		}
		sum, _ := tr.run(within(t, 20*time.Second))
		if sum.Moved.Blocks != 1 {
			t.Errorf("got %+v, want one moved", sum)
		}
	})
}

// A lane that waits for its own connection is judged by that connection, whatever the other lanes carry.
func TestLaneOfASlowPeerBeginsWhatThatPeerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := toFour(t, 8, 4)
		tr.cfg.Connections = 1
		tr.wrap = func(conn net.Conn) net.Conn { return narrowLink{conn, rate.NewLimiter(1<<20, 16<<10)} }
		sum, _ := tr.run(within(t, 10*time.Second))
		if sum.Moved.Blocks != 8 {
			t.Errorf("got %+v, want two by each lane", sum)
		}
	})
}

// A link stands still for some seconds, but for less than peerTimeout, and is tried again: there is time for the block once the link is
// well.
func TestLinkThatStoodStillIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, id, content := large(t, inventory.LayoutFiles)
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1
		var still atomic.Bool
		tr.wrap = func(conn net.Conn) net.Conn {
			ended, end := context.WithTimeout(t.Context(), 10*time.Second)
			return narrowLink{&stallingConn{conn, 8 << 20, &still, ended, end}, rate.NewLimiter(narrow, 16<<10)}
		}
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, map[string][]byte{id: content}, entries, b)
	})
}
