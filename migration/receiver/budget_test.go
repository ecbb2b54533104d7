package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// When a whole pool goes at once, some of its nodes cannot reach the coordinator. They find a way in though the others
// were first, and no node has all the ways for itself.
func TestStreamsAreKeptForSendersThatAreAlone(t *testing.T) {
	b := Budget{Streams: 10}
	in := func(node string, alone bool, want string) {
		t.Helper()
		err := b.Enter(node, alone)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", node, err, want)
		}
	}
	for range 5 {
		in("greedy", false, "")
	}
	in("greedy", false, "5 streams of greedy")
	in("greedy", true, "5 streams of greedy")
	in("b", false, "")
	in("c", false, "")
	in("d", false, "")
	in("e", false, "8 streams are being served, at most 8; try elsewhere")
	in("f", true, "")
	in("g", true, "")
	in("h", true, "10 streams")
	b.Leave("greedy")
	b.Leave("greedy")
	in("e", false, "8 streams are being served, at most 8")
	b.Leave("f")
	b.Leave("g")
	in("e", false, "")
	if len(b.open) != 5 {
		t.Errorf("counted are %v", b.open)
	}
}

// The quota holds for what rests here and what was promised; a fifth of it is for those that are alone, and what a broken
// stream had been promised is free again.
func TestQuotaIsPromisedOnce(t *testing.T) {
	b := Budget{bytes: 1000}
	first, err := b.promise(500, 500, 200, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.promise(200, 200, 200, false); err == nil {
		t.Error("700 of 800 are gone, and 200 were promised")
	} else if full, is := errors.AsType[*FullError](err); !is || full.HasBytes != 100 {
		t.Errorf("got %v, want that 100 are left", err)
	} else if !strings.Contains(err.Error(), "quota of 1000 B is used up, but for 200 B") {
		t.Errorf("got %v, want it to tell of the 200 that are kept", err)
	}
	if got := b.left(200, 1<<40, false); got != 100 {
		t.Errorf("%d bytes of room, want 100", got)
	}
	if _, err := b.promise(200, 200, 200, true); err != nil {
		t.Errorf("one that is alone: %v", err)
	}
	if _, err := b.promise(300, 300, 200, true); err == nil || strings.Contains(err.Error(), "kept") {
		t.Errorf("got %v, want that all of it is used up", err)
	}
	first()
	first()
	if got := b.left(200, 1<<40, false); got != 400 {
		t.Errorf("%d bytes of room after what was promised was given back, want 400", got)
	}
	if got := (&Budget{}).left(1<<50, 7, false); got != 7 {
		t.Errorf("without a quota there is room for %d, want what the disk has", got)
	}
}

// A block whose receipt was lost comes again, and finds the quota used up by itself: it needs nothing of it.
func TestQuotaLetsInWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.tune = func(c *Config) { c.MaxBytes = 1250 } // and a fifth of it is kept
		ctx, stop := b.receiving(t)
		x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
		for range 2 {
			s := b.stream(t, ctx)
			s.Send(x)
			s.WantReceipt()
			s.Conn.Close()
		}
		s := b.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/y", contentOf("y", 1000)))
		s.WantRefusal("quota")
		s.Send(blockFrames(2, "cache/-/x", contentOf("larger", 1001)))
		s.WantRefusal("need 1 B, has 0 B")
		s.Conn.Close()
		stop()
		if got := b.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1000}) {
			t.Errorf("got %+v at rest, want x alone", got)
		}
	})
}

// Blocks of no bytes whose openings are as long as may be are not gathered in memory as fast as they come, but as they become durable.
func TestOpeningsInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t) // and nobody makes anything durable
		ctx, stop := context.WithCancel(t.Context())
		s := newSender(t, ctx, b.receiver, "thief")
		origin := strings.Repeat("o", wire.MaxPayload[wire.FrameOpen]-100)
		sent := 0
		go func() {
			for ; sent < 1000; sent++ {
				name := fmt.Sprint("x", sent)
				o := wire.Opening{ID: "cache/-/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: origin, Members: []wire.MemberSize{{Name: name}}}
				if _, err := s.Conn.Write(openingFrames(uint32(sent), o, nil)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if bytes := sent * len(origin); bytes > maxOpenings+1<<20 || bytes < maxOpenings-1<<20 {
			t.Errorf("%d bytes of openings were taken, want about %d", bytes, maxOpenings)
		}
		running, end := context.WithCancel(t.Context())
		var receiving sync.WaitGroup
		receiving.Go(func() { b.receiver.Run(running) })
		go io.Copy(io.Discard, s.Conn)
		time.Sleep(time.Second)
		if got := b.Vault.Count().Blocks; got != 1000 {
			t.Errorf("%d blocks rest here, want all 1000", got)
		}
		s.Conn.Close()
		stop()
		end()
		receiving.Wait()
	})
}
