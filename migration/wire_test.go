package migration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// hooked is a connection that tells of what passes, and may be made to misbehave.
type hooked struct {
	net.Conn
	afterRead func(total int64)                          // told how much has been read
	onRead    func(p []byte)                             // may change what was read
	onWrite   func(p []byte) (n int, err error, ok bool) // may take a write's place
	total     int64
}

func (h *hooked) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.total += int64(n)
	if h.onRead != nil {
		h.onRead(p[:n])
	}
	if h.afterRead != nil && n > 0 {
		h.afterRead(h.total)
	}
	return n, err
}

func (h *hooked) Write(p []byte) (int, error) {
	if h.onWrite != nil {
		if n, err, ok := h.onWrite(p); ok {
			return n, err
		}
	}
	return h.Conn.Write(p)
}

// Without TLS, so that it is our own checksums which are put to the test.
func TestFlippedBitOnTheWireIsNoticedAndSentAgain(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 20, wire.ChunkBytes/2)
			b := newNode(t, "b")
			b.plain = true
			rng := rand.New(rand.NewPCG(seed, 1))
			at := 2000 + rng.Int64N(15*wire.ChunkBytes/2)
			var flipped atomic.Bool
			b.mangle = func(conn net.Conn) net.Conn {
				h := &hooked{Conn: conn}
				h.onRead = func(p []byte) {
					if h.total > at && len(p) > 0 && flipped.CompareAndSwap(false, true) {
						p[rng.IntN(len(p))] ^= 1 << rng.IntN(8)
					}
				}
				return h
			}
			tr := newTrip(t, a, b)
			tr.cfg.Connections = 1
			_, entries := tr.run(within(t, time.Minute))
			if !flipped.Load() {
				t.Fatal("no bit was flipped")
			}
			wantThere(t, want, entries, b)
		})
	}
}

func TestConnectionsCutAtRandomPointsLoseNothing(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 60, 40_000)
			big := contentOf("big", 3*wire.ChunkBytes+5)
			write(t, filepath.Join(a.Dir, "cache", "big"), big)
			want["cache/-/big"] = big
			b := newNode(t, "b")
			rng := rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			var cuts int
			b.mangle = func(conn net.Conn) net.Conn {
				mu.Lock()
				defer mu.Unlock()
				limit := rng.Int64N(1 << 20)
				if cuts++; cuts > 12 {
					return conn
				}
				return &hooked{Conn: conn, afterRead: func(total int64) {
					if total > limit {
						conn.Close()
					}
				}}
			}
			_, entries := a.drain(t, within(t, 2*time.Minute), b)
			wantThere(t, want, entries, b)
			if cuts < 4 {
				t.Errorf("only %d connections were made: nothing was cut", cuts)
			}
		})
	}
}

// The receiver made everything durable and died before its receipts got out.
func TestReceiverKilledBeforeItsReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 10, 20_000)
		first, second := newNode(t, "b"), newNode(t, "b")
		var cut []net.Conn
		var mu sync.Mutex
		first.plain, second.plain = true, true
		first.mangle = func(conn net.Conn) net.Conn {
			mu.Lock()
			defer mu.Unlock()
			cut = append(cut, conn)
			words := 0
			return &hooked{Conn: conn, onWrite: func(p []byte) (int, error, bool) {
				words++
				return len(p), nil, words > 1 // the grant is heard, receipts are not
			}}
		}
		tr := newTrip(t, a, first)
		time.AfterFunc(3*time.Second, func() {
			if len(first.LandedBlocks()) != 10 {
				t.Errorf("%d blocks were durable, want 10", len(first.LandedBlocks()))
			}
			if err := second.Vault.Close(); err != nil {
				t.Error(err)
			}
			os.RemoveAll(filepath.Join(second.Dir, "vault"))
			if err := os.CopyFS(filepath.Join(second.Dir, "vault"), os.DirFS(filepath.Join(first.Dir, "vault"))); err != nil {
				t.Error(err)
			}
			second.Open(t)
			tr.mu.Lock()
			tr.to["b"] = second
			tr.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range cut {
				c.Close()
			}
		})
		before := func() int64 { return first.SegmentBytes(t) }
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, second)
		if held := second.LandedBlocks(); len(held) != 0 {
			t.Errorf("%d blocks landed a second time", len(held))
		}
		if got := second.SegmentBytes(t); got != before() {
			t.Errorf("segments hold %d bytes, want the %d of one copy", got, before())
		}
	})
}

// stuck is a connection whose reader stopped after so many bytes.
func stuck(conn net.Conn, limit int64) net.Conn {
	closed := make(chan struct{})
	return &stuckConn{hooked: hooked{Conn: conn}, limit: limit, closed: closed, once: sync.OnceFunc(func() { close(closed) })}
}

type stuckConn struct {
	hooked
	limit  int64
	closed chan struct{}
	once   func()
}

func (s *stuckConn) Read(p []byte) (int, error) {
	if s.total > s.limit {
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.hooked.Read(p)
}

func (s *stuckConn) Close() error { s.once(); return s.Conn.Close() }

func (s *stuckConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !t.After(time.Now()) {
		s.once()
	}
	return s.Conn.SetReadDeadline(t)
}

// What a stalled peer took goes to another one, long before the deadline.
func TestStalledReceiverDoesNotHoldTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 100, 50_000)
		b, c := newNode(t, "b"), newNode(t, "c")
		b.mangle = func(conn net.Conn) net.Conn { return stuck(conn, 300_000) }
		began := time.Now()
		_, entries := a.drain(t, within(t, 2*time.Minute), b, c)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		wantThere(t, want, entries, b, c)
	})
}

// A peer that takes everything and never answers is the same.
func TestSilentReceiverDoesNotHoldItsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 50_000)
		c := newNode(t, "c")
		tr := newTrip(t, a, c)
		silent := func(conn net.Conn) {
			fr := granted(conn)
			for {
				if _, err := fr.Next(); err != nil {
					return
				}
			}
		}
		_, entries := withFake(tr, "b", silent).run(within(t, 2*time.Minute))
		wantThere(t, want, entries, c)
	})
}

// withFake adds a peer that is only a func.
func withFake(tr *trip, name string, serve func(net.Conn)) *trip {
	list := append(tr.cfg.Peers(), Peer{Node: name, Address: name})
	tr.cfg.Peers = func() []Peer { return list }
	tr.fakes = map[string]func(net.Conn){name: serve}
	return tr
}

// Hanging up politely is not the same as "every block is settled".
func TestPeerThatHangsUpDoesNotEndTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		c := newNode(t, "c")
		tr := newTrip(t, a, c)
		tr.cfg.Peers = after(10*time.Second, tr.cfg.Peers)
		calls := 0
		polite := func(conn net.Conn) {
			calls++
			granted(conn)
			conn.Close()
		}
		tr.cfg.Connections = 1
		list := []Peer{{Node: "b"}}
		late := tr.cfg.Peers
		tr.fakes = map[string]func(net.Conn){"b": polite}
		tr.cfg.Peers = func() []Peer { return append(list, late()...) }
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, c)
		if calls > 20 {
			t.Errorf("it was called %d times in 10 s: that is no back-off", calls)
		}
	})
}

// granted lets a sender begin as a peer with room does, and returns what it sends from then on.
func granted(conn net.Conn) *wire.Reader {
	fr := wire.NewReader(conn, wire.ChunkBytes)
	fr.Next()
	conn.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 40, VaultBytes: 1 << 40}.Append(nil)))
	return fr
}

// A peer chokes on one block. The others go there all the same.
func TestPoisonousBlockDoesNotHoldTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		tr := newTrip(t, a)
		serve := func(conn net.Conn) {
			defer conn.Close()
			fr := granted(conn)
			for {
				f, err := fr.Next()
				if err != nil {
					return
				}
				switch f.Type {
				case wire.FrameOpen:
					if bytes.Contains(f.Payload, []byte("f-0000")) {
						return
					}
				case wire.FrameClose:
					conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, []wire.Verdict{{Transfer: f.Transfer}})))
				}
			}
		}
		_, entries := withFake(tr, "b", serve).run(within(t, time.Minute))
		if moved := outcome(t, entries, manifest.Moved); len(moved) != 19 {
			t.Errorf("%d moved, want 19", len(moved))
		}
		wantLost(t, map[string][]byte{"cache/-/f-0000": want["cache/-/f-0000"]}, entries, "sent to b")
	})
}

// The peer makes a large block durable only when the next one is on its way, as one does whose disk takes its time.
func TestLinkDoesNotRestBetweenLargeBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandVault, Paths: []string{"disk"}})
		for i := range 3 {
			f := filepath.Join(a.Stores[0].Paths[0], fmt.Sprintf("large-%d", i))
			if err := cmp.Or(os.WriteFile(f, nil, 0o600), os.Truncate(f, wire.MaxInflightBytes+1)); err != nil {
				t.Fatal(err)
			}
		}
		last := func(conn net.Conn) {
			defer conn.Close()
			fr := granted(conn)
			var owed []wire.Verdict
			for {
				f, err := fr.Next()
				if err != nil {
					break
				}
				switch f.Type {
				case wire.FrameOpen:
					if len(owed) > 0 {
						conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, owed)))
					}
					owed = nil
				case wire.FrameClose:
					if owed = append(owed, wire.Verdict{Transfer: f.Transfer}); f.Transfer == 3 {
						conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, owed)))
					}
				}
			}
		}
		tr := withFake(newTrip(t, a), "b", last)
		tr.cfg.Connections = 1
		began := time.Now()
		_, entries := tr.run(within(t, time.Minute))
		if moved := outcome(t, entries, manifest.Moved); len(moved) != 3 {
			t.Errorf("%d moved, want 3", len(moved))
		}
		if took := time.Since(began); took >= peerTimeout {
			t.Errorf("it took %v: the link rested until somebody lost patience", took)
		}
	})
}

// Nothing can end a call that hangs in the kernel. The account is given without it.
func TestDrainEndsThoughAConnectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b := newNode(t, "b")
		b.plain = true
		tr := newTrip(t, a, b)
		hang := make(chan struct{})
		tr.wrap = func(conn net.Conn) net.Conn {
			words := 0
			return &hooked{Conn: conn, onWrite: func(p []byte) (int, error, bool) {
				if words++; words > 1 {
					<-hang
				}
				return 0, errors.New("thawed"), words > 1
			}}
		}
		deadline := time.Now().Add(5 * time.Second)
		_, entries := tr.run(within(t, 5*time.Second))
		if over := time.Since(deadline); over > receiptGrace+2*time.Second {
			t.Errorf("the drain ended %v after its deadline", over)
		}
		wantLost(t, want, entries, "")
		close(hang)
		synctest.Wait()
	})
}

// And a drain remembers it, of the newest of its streams.
func TestDrainHearsWhoServesOthers(t *testing.T) {
	p := &peerState{Peer: Peer{Node: "b"}}
	for _, shared := range []bool{true, false} {
		ours, theirs := net.Pipe()
		l := &lane{lanes: &lanes{cargo: cargo{source: &source{node: "a"}}, peers: &peers{}}, peer: p, conn: ours}
		go func() {
			wire.NewReader(theirs, wire.MaxPayload[wire.FrameHello]).Next()
			theirs.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1, Shared: shared}.Append(nil)))
		}()
		if err := l.handshake(wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])); err != nil || p.shared != shared || l.books.room.Most != 1 {
			t.Errorf("got shared %t, room for %d, %v, want shared %t", p.shared, l.books.room.Most, err, shared)
		}
		ours.Close()
	}
}

func ExampleFullError() {
	fmt.Println(&receiver.FullError{NeedBytes: 20972544, HasBytes: 20163584})
	fmt.Println(&receiver.FullError{NeedBytes: 20972544, HasBytes: 20971520})
	// Output:
	// full: need 20.0 MiB, has 19.2 MiB
	// full: need 20972544 bytes, has 20971520
}
