package migration

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer keeps a part of its quota for drains without a coordinator: such a drain finds room where one with a coordinator is refused.
// Blocks that rest at a peer count against its quota.
func TestQuotaDecidesWhereBlocksGo(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 10, 100_000)
			b := newNode(t, "b")
			b.tune = func(c *receiver.Config) { c.MaxBytes = 1_010_000 } // records take some of it
			tr := newTrip(t, a, b)
			tr.cfg.Alone = func() bool { return alone }
			sum, entries := tr.run(within(t, 30*time.Second))
			if alone {
				wantThere(t, want, entries, b)
			} else if sum.Moved.Blocks != 8 || sum.Lost.Blocks != 2 {
				t.Errorf("got %+v, want that a fifth of the quota is kept", sum)
			}
			if got := b.Vault.Count().Bytes; got != sum.Moved.Bytes {
				t.Errorf("%d bytes rest there, %d moved", got, sum.Moved.Bytes)
			}
		})
	}
}

// A peer took a block and never answered. The block is offered there again even though the peer has no room left: it may have the
// block.
func TestFullPeerIsAskedForReceiptsThatWereLost(t *testing.T) {
	for name, fill := range map[string]func(*node){
		"quota": func(b *node) { b.tune = func(c *receiver.Config) { c.MaxBytes = 1_010_000 } },
		"disk": func(b *node) {
			b.Room = func(string) int64 {
				if len(b.LandedBlocks()) > 0 {
					return 0
				}
				return 1 << 40
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 8, 100_000)
				b := newNode(t, "b")
				fill(b)
				var once sync.Once
				b.mangle = func(c net.Conn) net.Conn { return &silenced{c, b, &once} }
				tr := newTrip(t, a, b)
				tr.cfg.Connections = 1
				sum, entries := tr.run(within(t, 30*time.Second))
				wantThere(t, want, entries, b)
				if got := b.Vault.Count(); got != sum.Moved {
					t.Errorf("%+v rest there, %+v moved", got, sum.Moved)
				}
			})
		})
	}
}

// The block is offered there only once: else a full peer that does not have it would be sent it for ever.
func TestFullPeerIsAskedOnce(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Log: slog.New(slog.DiscardHandler)})
	defer d.plan.Close()
	defer d.account.ledger.Close()
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
	l := &lane{lanes: d.lanes, peer: &peerState{Peer: Peer{Node: "b"}}}
	l.refused(e, wire.Verdict{Code: wire.VerdictFull, Reason: "full"})
	if _, ok, _, err := takeOne(d.plan, "b", 0); ok || err != plan.ErrNoRoom {
		t.Errorf("after it refused: got %t, %v", ok, err)
	}
}

// silenced is cut off, once, where receipts would have been written.
type silenced struct {
	net.Conn
	by   *node
	once *sync.Once
}

func (c *silenced) Write(p []byte) (n int, err error) {
	if len(c.by.LandedBlocks()) > 0 {
		c.once.Do(func() { err = errors.Join(net.ErrClosed, c.Conn.Close()) })
	}
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
