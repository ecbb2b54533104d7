package migration

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// When a whole pool goes at once, some of its nodes cannot reach the coordinator. They find a way in though the others
// were first, and no node has all the ways for itself.
func TestStreamsAreKeptForSendersThatAreAlone(t *testing.T) {
	b := budget{streams: 10}
	in := func(node string, alone bool, want string) {
		t.Helper()
		err := b.enter(node, alone)
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
	b.leave("greedy")
	b.leave("greedy")
	in("e", false, "8 streams are being served, at most 8")
	b.leave("f")
	b.leave("g")
	in("e", false, "")
	if len(b.open) != 5 {
		t.Errorf("counted are %v", b.open)
	}
}

// The quota holds for what rests here and what was promised; a fifth of it is for those that are alone, and what a broken
// stream had been promised is free again.
func TestQuotaIsPromisedOnce(t *testing.T) {
	b := budget{bytes: 1000}
	first, err := b.promise(500, 200, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.promise(200, 200, false); err == nil {
		t.Error("700 of 800 are gone, and 200 were promised")
	} else if full, is := errors.AsType[*FullError](err); !is || full.HasBytes != 100 {
		t.Errorf("got %v, want that 100 are left", err)
	} else if !strings.Contains(err.Error(), "quota of 1000 B is used up, but for 200 B") {
		t.Errorf("got %v, want it to tell of the 200 that are kept", err)
	}
	if got := b.left(200, 1<<40, false); got != 100 {
		t.Errorf("%d bytes of room, want 100", got)
	}
	if _, err := b.promise(200, 200, true); err != nil {
		t.Errorf("one that is alone: %v", err)
	}
	if _, err := b.promise(300, 200, true); err == nil || strings.Contains(err.Error(), "kept") {
		t.Errorf("got %v, want that all of it is used up", err)
	}
	first()
	first()
	if got := b.left(200, 1<<40, false); got != 400 {
		t.Errorf("%d bytes of room after what was promised was given back, want 400", got)
	}
	if got := (&budget{}).left(1<<50, 7, false); got != 7 {
		t.Errorf("without a quota there is room for %d, want what the disk has", got)
	}
}

// A drain whose coordinator is gone goes where one that is known is turned away, and what rests somewhere counts.
func TestQuotaDecidesWhereBlocksGo(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 10, 1000)
			b := newNode(t, "b")
			b.tune = func(c *ReceiverConfig) { c.MaxBytes = 10_000 }
			tr := newTrip(t, a, b)
			tr.cfg.Alone = func() bool { return alone }
			sum, entries := tr.run(within(t, 30*time.Second))
			if alone {
				wantThere(t, want, entries, b)
			} else if sum.Moved.Blocks != 8 || sum.Lost.Blocks != 2 {
				t.Errorf("got %+v, want that a fifth of the quota is kept", sum)
			}
			if got := b.vault.Count().Bytes; got != sum.Moved.Bytes {
				t.Errorf("%d bytes rest there, %d moved", got, sum.Moved.Bytes)
			}
		})
	}
}

// A block whose receipt was lost comes again, and finds the quota used up by itself: it needs nothing of it.
func TestQuotaLetsInWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.tune = func(c *ReceiverConfig) { c.MaxBytes = 1250 } // and a fifth of it is kept
		ctx, stop := b.receiving(t)
		x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
		for range 2 {
			s := b.stream(t, ctx)
			s.send(x)
			s.wantReceipt()
			s.conn.Close()
		}
		s := b.stream(t, ctx)
		s.send(blockFrames(1, "cache/-/y", contentOf("y", 1000)))
		s.wantRefusal("quota")
		s.send(blockFrames(2, "cache/-/x", contentOf("larger", 1001)))
		s.wantRefusal("need 1 B, has 0 B")
		s.conn.Close()
		stop()
		if got := b.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1000}) {
			t.Errorf("got %+v at rest, want x alone", got)
		}
	})
}

// silenced is cut off, once, where receipts would have been written.
type silenced struct {
	net.Conn
	by   *node
	once *sync.Once
}

func (c *silenced) Write(p []byte) (n int, err error) {
	if len(c.by.landedBlocks()) > 0 {
		c.once.Do(func() { err = errors.Join(net.ErrClosed, c.Conn.Close()) })
	}
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// What a peer took and never answered for is offered there again, though the peer has no room left: it may have it.
func TestFullPeerIsAskedForReceiptsThatWereLost(t *testing.T) {
	for name, fill := range map[string]func(*node){
		"quota": func(b *node) { b.tune = func(c *ReceiverConfig) { c.MaxBytes = 10_000 } },
		"disk": func(b *node) {
			b.room = func(string) int64 {
				if len(b.landedBlocks()) > 0 {
					return 0
				}
				return 1 << 40
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 8, 1000)
				b := newNode(t, "b")
				fill(b)
				var once sync.Once
				b.mangle = func(c net.Conn) net.Conn { return &silenced{c, b, &once} }
				tr := newTrip(t, a, b)
				tr.cfg.Connections = 1
				sum, entries := tr.run(within(t, 30*time.Second))
				wantThere(t, want, entries, b)
				if got := b.vault.Count(); got != sum.Moved {
					t.Errorf("%+v rest there, %+v moved", got, sum.Moved)
				}
			})
		})
	}
}

// It is offered there once: a peer that is full and has it not would be sent it for ever.
func TestFullPeerIsAskedOnce(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.dir, "drain"), Stores: a.stores, Vault: a.vault, Log: slog.New(slog.DiscardHandler)})
	defer d.plan.Close()
	defer d.ledger.Close()
	if err := d.plan.Add(t.Context(), inventory.Block{ID: "cache/-/x", Members: []inventory.Member{{Name: "x", Bytes: 1000}}}); err != nil {
		t.Fatal(err)
	}
	e, _, _, _ := takeOne(d.plan, "b", 1000)
	d.plan.GiveBack(e.After(plan.Setbacks{Shun: "b", Unanswered: true}), 0, "no receipt")
	if _, ok, _, err := takeOne(d.plan, "c", 0); ok || err != plan.ErrNoRoom {
		t.Errorf("another peer without room: got %t, %v", ok, err)
	}
	e, ok, _, err := takeOne(d.plan, "b", 0)
	if !ok {
		t.Fatalf("got %v, want it offered to who may have it", err)
	}
	l := &lane{d: d, peer: &peerState{Peer: Peer{Node: "b"}}}
	l.refused(e, wire.Verdict{Code: wire.VerdictFull, Reason: "full"})
	if _, ok, _, err := takeOne(d.plan, "b", 0); ok || err != plan.ErrNoRoom {
		t.Errorf("after it refused: got %t, %v", ok, err)
	}
}
