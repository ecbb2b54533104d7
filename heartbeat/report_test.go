package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

func TestLandedAndGoneAreReportedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		_, c, _ := holding(t, co, heldBlocks("old"))
		time.Sleep(5 * time.Second)
		c.Landed(&api.HeldBlock{Id: "x", Bytes: 1}, &api.HeldBlock{Id: "y", Bytes: 1})
		c.Gone("kept for an hour", "y", "old")
		c.Gone("broken", "z")
		c.Landed(&api.HeldBlock{Id: "old", Bytes: 2})
		time.Sleep(2 * time.Second)
		if got, want := co.heldIDs(), []string{"old", "x"}; !slices.Equal(got, want) {
			t.Errorf("got %v held, want %v", got, want)
		}
		if got := read(co, func() int { return co.full }); got != 1 {
			t.Errorf("got %d full reports, want the first alone", got)
		}
		want := []string{"y: kept for an hour", "old: kept for an hour", "z: broken"}
		if got := read(co, func() []string { return co.gone }); !slices.Equal(got, want) {
			t.Errorf("got %q gone, want %q", got, want)
		}
	})
}

func TestOverflowBecomesAFullReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		var held []string
		n, c, stop := holding(t, co, func() iter.Seq2[*api.HeldBlock, error] { return heldBlocks(held...)() })
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		for i := range 3 * mostQueued {
			id := fmt.Sprintf("block-%06d", i)
			held = append(held, id)
			c.Landed(&api.HeldBlock{Id: id, Bytes: 1})
		}
		c.outbox.mu.Lock()
		if got := c.outbox.words.count; got > mostQueued {
			t.Errorf("got %d words queued, want at most %d", got, mostQueued)
		}
		c.outbox.mu.Unlock()
		co.set(func() { co.held = nil })
		n.serve(t, addrA, co)
		time.Sleep(10 * time.Second)
		if got := co.heldIDs(); !slices.Equal(got, held) {
			t.Errorf("got %d blocks held after the overflow, want %d", len(got), len(held))
		}
		if got := read(co, func() int { return co.full }); got != 2 {
			t.Errorf("got %d full reports, want two: at the registration and for the overflow", got)
		}
	})
}

// The coordinator learns why each block is gone, even if more was queued than fits, or a report failed.
func TestFullReportForgetsNotWhyBlocksAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		n, c, stop := holding(t, co, heldBlocks("here"))
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		c.Gone("kept for an hour", "x")
		for i := range mostQueued {
			c.Landed(&api.HeldBlock{Id: fmt.Sprint("block-", i), Bytes: 1})
		}
		c.Gone("removed", "y", "here") // and it came again
		co.set(func() {
			co.held = nil
			co.onReport = func(context.Context) error { return status.Error(codes.Internal, "disk full") }
		})
		n.serve(t, addrA, co)
		time.Sleep(10 * time.Second)
		co.set(func() { co.gone, co.onReport = nil, nil })
		time.Sleep(30 * time.Second)
		want := []string{"x: kept for an hour", "y: removed", "here: removed"}
		if got := read(co, func() []string { return co.gone }); !slices.Equal(got, want) {
			t.Errorf("got %q gone, want %q", got, want)
		}
		if got := co.heldIDs(); !slices.Equal(got, []string{"here"}) {
			t.Errorf("got %q held, want what Held yields", got)
		}
	})
}

// If the coordinator refuses what is said of some blocks, it still hears of the others.
func TestRefusedWordDoesNotKeepOthersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		_, c, _ := holding(t, co, heldBlocks("here"))
		time.Sleep(5 * time.Second)
		co.set(func() { co.held, co.refused = nil, "too long" })
		c.Gone("too long", "x")
		time.Sleep(30 * time.Second)
		if got := co.heldIDs(); !slices.Equal(got, []string{"here"}) {
			t.Errorf("got %q held, want what Held yields", got)
		}
		if _, _, trouble := c.Health(); trouble != "" {
			t.Errorf("got trouble %q after the full report", trouble)
		}
	})
}

// If the link fails twice during a report of why a block is gone, the reason is told once the link works again.
func TestWhyIsToldWhenTheLinkIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		_, c, _ := holding(t, co, heldBlocks("here"))
		time.Sleep(5 * time.Second)
		var asked atomic.Int32
		co.set(func() {
			co.onReport = func(context.Context) error {
				if asked.Add(1) <= 2 {
					return status.Error(codes.Unavailable, "cut")
				}
				return nil
			}
		})
		c.Gone("kept for an hour", "x")
		time.Sleep(30 * time.Second)
		if got := read(co, func() []string { return co.gone }); !slices.Equal(got, []string{"x: kept for an hour"}) {
			t.Errorf("got %q gone, want it and why", got)
		}
		if got := co.heldIDs(); !slices.Equal(got, []string{"here"}) {
			t.Errorf("got %q held, want what Held yields", got)
		}
	})
}

// However many blocks are gone, the queue stays within its bound.
func TestWhatIsGoneFillsNoMoreThanTheQueue(t *testing.T) {
	o := newOutbox()
	var gone words
	for range mostQueued {
		gone.gone("x", "it was broken")
	}
	o.full(gone)
	c := &Client{outbox: o}
	c.Gone("it was broken", make([]string, 2*mostQueued)...)
	o.full(gone)
	if o.words.count != mostQueued || !o.fullDue {
		t.Errorf("got %d words, full report %t, want %d and one", o.words.count, o.fullDue, mostQueued)
	}
}

func TestFailedReportIsReplacedByAFullOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		_, c, _ := holding(t, co, heldBlocks("old", "x"))
		time.Sleep(5 * time.Second)
		co.set(func() {
			co.onReport = func(context.Context) error { return status.Error(codes.Internal, "disk full") }
		})
		c.Landed(&api.HeldBlock{Id: "x", Bytes: 1})
		time.Sleep(5 * time.Second)
		if _, _, trouble := c.Health(); trouble == "" {
			t.Error("got no trouble while no report goes through")
		}
		co.set(func() { co.onReport, co.held = nil, nil })
		time.Sleep(10 * time.Second)
		if got, want := co.heldIDs(), []string{"old", "x"}; !slices.Equal(got, want) {
			t.Errorf("got %v held, want %v", got, want)
		}
		if _, _, trouble := c.Health(); trouble != "" {
			t.Errorf("got trouble %q after it ended", trouble)
		}
	})
}

func TestHeldThatCannotBeReadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		n.serve(t, addrA, co)
		var broken atomic.Bool
		broken.Store(true)
		cfg := config(n, addrA)
		cfg.Held = func() iter.Seq2[*api.HeldBlock, error] {
			return func(yield func(*api.HeldBlock, error) bool) {
				if yield(&api.HeldBlock{Id: "x", Bytes: 1}, nil) && broken.Load() {
					yield(nil, fmt.Errorf("read segment: %w", io.EOF)) // not the stream's own io.EOF
				}
			}
		}
		c := newClient(t, cfg)
		start(t, c)
		time.Sleep(10 * time.Second)
		if _, _, trouble := c.Health(); trouble == "" {
			t.Error("got no trouble while Held cannot be read")
		}
		broken.Store(false)
		time.Sleep(10 * time.Second)
		if got := co.heldIDs(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("got %v held, want x", got)
		}
	})
}

func TestBeatsGoOnWhileStreamsAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		co := &coordinator{onReport: hang, onGoodbye: func(ctx context.Context, _ *api.GoodbyeRequest) error { return hang(ctx) }}
		n.serve(t, addrA, co)
		cfg := config(n, addrA)
		cfg.Held = func() iter.Seq2[*api.HeldBlock, error] { return blocksWithoutEnd }
		c := newClient(t, cfg)
		start(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err := c.Goodbye(ctx, &api.ManifestSummary{}, entriesWithoutEnd)
		if got := status.Code(err); got != codes.DeadlineExceeded {
			t.Errorf("got %v from a goodbye that nobody reads, want its context's deadline", err)
		}
		co.mu.Lock()
		defer co.mu.Unlock()
		for i := 1; i < len(co.beatTimes); i++ {
			if gap := co.beatTimes[i].Sub(co.beatTimes[i-1]); gap > 1200*time.Millisecond {
				t.Errorf("got %v between beats beside stuck streams, want a second", gap)
			}
		}
		if len(co.beatTimes) < 100 {
			t.Errorf("got %d beats in two minutes, want 120", len(co.beatTimes))
		}
	})
}

func TestStalledReportIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{onReport: hang}
		_, c, _ := holding(t, co, heldBlocks("x"))
		time.Sleep(stallLimit + time.Second)
		if _, _, trouble := c.Health(); trouble == "" {
			t.Errorf("got no trouble %v after a report stalled", stallLimit)
		}
		co.set(func() { co.onReport = nil })
		time.Sleep(stallLimit + 2*backoffMost)
		if got := co.heldIDs(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("got %v held once the coordinator takes reports, want x", got)
		}
	})
}

func blocksWithoutEnd(yield func(*api.HeldBlock, error) bool) {
	for yield(&api.HeldBlock{Id: "a/b/block", Bytes: 1}, nil) {
	}
}

func entriesWithoutEnd(yield func(*api.ManifestEntry, error) bool) {
	for yield(&api.ManifestEntry{Id: "a/b/block", Outcome: "moved", Peer: "host-b"}, nil) {
	}
}

func TestGoodbyeStreamsInBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 200_000
		n := newNetwork()
		yielded, most := 0, 0
		co := &coordinator{}
		var received atomic.Int64
		co.onGoodbye = func(_ context.Context, r *api.GoodbyeRequest) error {
			received.Add(int64(len(r.Entries)))
			for _, run := range r.Runs {
				received.Add(int64(len(run.Blocks.Lengths)))
			}
			time.Sleep(10 * time.Millisecond) // slower than the sender
			return nil
		}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		start(t, c)
		err := c.Goodbye(t.Context(), &api.ManifestSummary{Incident: "inc-9"}, func(yield func(*api.ManifestEntry, error) bool) {
			for yielded = range total {
				most = max(most, yielded-int(received.Load()))
				if !yield(&api.ManifestEntry{Id: fmt.Sprintf("spark/app-1/rdd_7_%07d", yielded), Bytes: 1, Outcome: "moved", Peer: "host-b"}, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		co.mu.Lock()
		defer co.mu.Unlock()
		if co.whole != 1 {
			t.Errorf("got %d whole manifests, want 1", co.whole)
		}
		if got := co.summary; got.GetNode() != "host-a" || got.GetIncarnation() != "inc-1" || got.GetIncident() != "inc-9" {
			t.Errorf("got summary %v", got)
		}
		if len(co.entries) != total || !slices.IsSorted(co.entries) {
			t.Errorf("got %d entries, want %d in order", len(co.entries), total)
		}
		if most > 20_000 {
			t.Errorf("got %d entries between the sender and the receiver, want a few windows' worth", most)
		}
	})
}

func TestManifestThatCannotBeReadIsNotAWholeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		torn := fmt.Errorf("journal is torn: %w", io.EOF)
		err := c.Goodbye(t.Context(), &api.ManifestSummary{}, func(yield func(*api.ManifestEntry, error) bool) {
			for range 2 * batchItems {
				if !yield(&api.ManifestEntry{Id: "x"}, nil) {
					return
				}
			}
			yield(nil, torn)
		})
		if !errors.Is(err, torn) {
			t.Errorf("got %v, want what the manifest's reader said", err)
		}
		synctest.Wait()
		// The coordinator may have heard a part of it, depending on how far gRPC had come.
		if got := read(co, func() int { return co.whole }); got != 0 {
			t.Errorf("the coordinator took %d manifests for whole, want none", got)
		}
	})
}

func TestRefusedGoodbyeSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		co.onGoodbye = func(context.Context, *api.GoodbyeRequest) error {
			return status.Error(codes.FailedPrecondition, "no such decommission")
		}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		err := c.Goodbye(t.Context(), &api.ManifestSummary{}, entriesWithoutEnd)
		if got := status.Code(err); got != codes.FailedPrecondition {
			t.Errorf("got %v, want the coordinator's own word", err)
		}
	})
}

func TestSlowBeatDoesNotCutAGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{}
		n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		stop := start(t, c)
		time.Sleep(time.Second)
		co.set(func() { co.onBeat = hang })
		err := c.Goodbye(t.Context(), &api.ManifestSummary{}, func(yield func(*api.ManifestEntry, error) bool) {
			for range 60 {
				time.Sleep(time.Second)
				if !yield(&api.ManifestEntry{Id: "x"}, nil) {
					return
				}
			}
			stop() // nor must the end of Run stop it
		})
		if err != nil {
			t.Errorf("got %v from a goodbye beside beats that fail, want it to arrive", err)
		}
		if got := read(co, func() int { return len(co.entries) }); got != 60 {
			t.Errorf("got %d entries, want 60", got)
		}
	})
}

// In a large fleet the next beat may be ten seconds away, and the peer whose blocks landed here may be gone by then.
func TestReportDoesNotWaitForTheBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: 10 * time.Second}
		c := beating(t, co)
		time.Sleep(time.Minute)
		for _, id := range []string{"x", "y"} {
			beats := co.beatCount()
			c.Landed(&api.HeldBlock{Id: id, Bytes: 1})
			c.Report()
			synctest.Wait()
			if got := co.heldIDs(); !slices.Contains(got, id) || co.beatCount() != beats {
				t.Errorf("got %v held after %d beats, want %s among them before the next one", got, co.beatCount()-beats, id)
			}
		}
	})
}
