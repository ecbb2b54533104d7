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
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// When a whole pool goes at once, some of its nodes cannot reach the coordinator. They still get streams though the
// others came first, and no node gets all of them.
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

// The quota covers what rests here and what has been promised. A fifth of it is for senders without a coordinator, and a
// broken stream's promise is free again.
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

// A block whose receipt was lost comes again, and itself has used the quota up: it needs nothing of it.
func TestQuotaLetsInWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.tune = func(c *Config) { c.MaxBytes = 126_000 } // a fifth of it is kept for others, and the records take some
		ctx, stop := b.receiving(t)
		x := blockFrames(1, "cache/-/x", contentOf("x", 100_000))
		for range 2 {
			s := b.stream(t, ctx)
			s.Send(x)
			s.WantReceipt()
			s.Conn.Close()
		}
		s := b.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/y", contentOf("y", 1000)))
		s.WantRefusal("quota")
		s.Send(blockFrames(2, "cache/-/x", contentOf("larger", 101_000)))
		s.WantRefusal("need 99") // less the letters of its origin, which are on record
		s.Conn.Close()
		stop()
		if got := b.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 100_000}) {
			t.Errorf("got %+v at rest, want x alone", got)
		}
	})
}

// Blocks of no bytes have names and records, which take space on the disk, and a quota bounds that. When the blocks are gone they
// take nothing of it.
func TestQuotaCountsWhatBlocksHaveBesideTheirBytes(t *testing.T) {
	const quota, blocks = 1 << 20, 4000
	for _, letters := range []int{0, 1000, wire.MaxPayload[wire.FrameOpen] - 200} {
		n := newNode(t, "b")
		n.tune = func(c *Config) { c.MaxBytes = quota }
		n.receive(t)
		before := onDisk(t, n.Dir)
		var frames [][]byte
		for i := range blocks {
			name := fmt.Sprint("x", i)
			o := wire.Opening{ID: "cache/-/" + name, Kind: strings.Repeat("k", letters), Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: name}}}
			frames = append(frames, openingFrames(uint32(i+1), o, nil))
		}
		durable := 0
		for _, v := range landAll(t, n, frames...) {
			if v.Code == wire.VerdictDurable {
				durable++
			} else if v.Code != wire.VerdictFull || !strings.Contains(v.Reason, "the quota of 1.0 MiB is used up") {
				t.Fatalf("got %d %s, want that the quota is used up", v.Code, v.Reason)
			}
		}
		took, counted := onDisk(t, n.Dir)-before, n.Vault.Takes()
		t.Logf("%d blocks with %d letters: %d bytes are counted, the disk has %d", durable, letters, counted, took)
		if took > quota || counted > quota || counted < quota/2 {
			t.Errorf("a quota of %d, of which a fifth is kept, with %d letters: %d bytes are counted, the disk has %d", quota, letters, counted, took)
		}
		n.Reopen(t)
		if got := n.Vault.Takes(); got != counted {
			t.Errorf("after a restart %d bytes are counted, before %d", got, counted)
		}
		n.receive(t)
		n.remove(t, func(vault.Held) bool { return true })
		if got := n.Vault.Takes(); got != 0 {
			t.Errorf("%d bytes are counted of nothing", got)
		}
	}
}

// Blocks of no bytes with openings of the greatest length do not gather in memory as fast as they come, but only as fast as they
// become durable.
func TestOpeningsInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t) // nobody makes anything durable
		ctx, stop := context.WithCancel(t.Context())
		s := newSender(t, ctx, b.receiver, "thief")
		kind := strings.Repeat("k", wire.MaxPayload[wire.FrameOpen]-200)
		sent := 0
		go func() {
			for ; sent < 1000; sent++ {
				name := fmt.Sprint("x", sent)
				o := wire.Opening{ID: "cache/-/" + name, Kind: kind, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: name}}}
				if _, err := s.Conn.Write(openingFrames(uint32(sent), o, nil)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if bytes := sent * len(kind); bytes > maxOpenings+1<<20 || bytes < maxOpenings-1<<20 {
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
