package migration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// afar is a storage that takes a part of a content at once, and has sent it before it asks for more: over one link for all contents, or
// over a connection of its own for each.
type afar struct {
	*larder
	part int
	link func() *rate.Limiter
}

func oneLink(bytesPerSecond int) func() *rate.Limiter {
	link := rate.NewLimiter(rate.Limit(bytesPerSecond), 16<<10)
	return func() *rate.Limiter { return link }
}

func ownLinks(bytesPerSecond int) func() *rate.Limiter {
	return func() *rate.Limiter { return oneLink(bytesPerSecond)() }
}

func (s afar) Put(ctx context.Context, name string, size int64, content io.Reader, fresh bool) error {
	var all []byte
	part, link := make([]byte, s.part), s.link()
	for {
		n, err := io.ReadFull(content, part)
		if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		for left := n; left > 0; left -= 16 << 10 {
			if err := errors.Join(link.WaitN(context.WithoutCancel(ctx), min(left, 16<<10)), ctx.Err()); err != nil {
				return err
			}
		}
		if all = append(all, part[:n]...); err != nil {
			return s.larder.Put(ctx, name, size, bytes.NewReader(all), fresh)
		}
	}
}

func (s afar) as(streams int) *lastresort.Storage {
	return &lastresort.Storage{Name: "spill", Layout: lastresort.LayoutBlocks, Streams: streams, Objects: s}
}

// Blocks share a narrow link. As many as it carries are there in time, whatever is begun at once.
func TestLargeBlocksOverANarrowLinkDoNotAllComeTooLate(t *testing.T) {
	for name, c := range map[string]struct{ size, part, carries, streams int }{
		"in parts":          {1 << 20, 320 << 10, 6, 8},
		"in many parts":     {1 << 20, 16 << 10, 6, 8},
		"whole":             {1 << 20, 1 << 20, 6, 8},
		"with many streams": {1 << 20, 320 << 10, 6, 64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 24, c.size)
				s := afar{newLarder(), c.part, oneLink(256 << 10)}
				tr := newTrip(t, a)
				tr.cfg.Fallback = s.as(c.streams)
				sum, entries := tr.run(within(t, 26*time.Second))
				if sum.Moved.Blocks < int64(c.carries)-1 {
					t.Errorf("got %+v, want %d or %d moved", sum.Moved, c.carries-1, c.carries)
				}
				lost := outcome(t, entries, manifest.Lost)
				maps.DeleteFunc(want, func(id string, _ []byte) bool { _, is := lost[id]; return is })
				wantInFallback(t, tr.cfg.Fallback, want, entries)
				for id, e := range lost {
					if !strings.Contains(e.Reason, errTooLate.Error()) {
						t.Errorf("%s is lost for %q, want for want of time", id, e.Reason)
					}
				}
			})
		})
	}
}

// If each upload has all the rate that it can use, none waits for another, however long it takes.
func TestLargeBlocksThatShareNoLinkAllGoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 8, 1<<20)
		s := afar{newLarder(), 32 << 10, ownLinks(1 << 20 / 20)} // twenty seconds for each
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(8)
		_, entries := tr.run(within(t, 26*time.Second))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}

// A block that waits for its turn goes to a peer that takes it.
func TestBlockThatWaitsForOthersGoesToAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 12, 1<<20)
		b := newNode(t, "b")
		s := afar{newLarder(), 320 << 10, oneLink(128 << 10)}
		tr := newTrip(t, a, b)
		tr.cfg.Fallback = s.as(8)
		peers, began := tr.cfg.Peers, time.Now()
		tr.cfg.Peers = func() []Peer {
			if time.Since(began) < 12*time.Second {
				return nil
			}
			return peers()
		}
		sum, entries := tr.run(within(t, 26*time.Second))
		there := 0
		for _, e := range outcome(t, entries, manifest.Moved) {
			if e.Peer == "b" {
				there++
			}
		}
		if sum.Lost.Blocks != 0 || there < 4 {
			t.Errorf("got %+v, %d of %d at the peer, which takes all", sum, there, len(want))
		}
	})
}
