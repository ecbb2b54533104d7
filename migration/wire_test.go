package migration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
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
			write(t, filepath.Join(a.dir, "cache", "big"), big)
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
			if len(first.landedBlocks()) != 10 {
				t.Errorf("%d blocks were durable, want 10", len(first.landedBlocks()))
			}
			if err := second.vault.Close(); err != nil {
				t.Error(err)
			}
			os.RemoveAll(filepath.Join(second.dir, "vault"))
			if err := os.CopyFS(filepath.Join(second.dir, "vault"), os.DirFS(filepath.Join(first.dir, "vault"))); err != nil {
				t.Error(err)
			}
			second.open(t)
			tr.mu.Lock()
			tr.to["b"] = second
			tr.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range cut {
				c.Close()
			}
		})
		before := func() int64 { return segmentBytesOf(t, first) }
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, second)
		if held := second.landedBlocks(); len(held) != 0 {
			t.Errorf("%d blocks landed a second time", len(held))
		}
		if got := segmentBytesOf(t, second); got != before() {
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
			f := filepath.Join(a.stores[0].Paths[0], fmt.Sprintf("large-%d", i))
			if err := cmp.Or(os.WriteFile(f, nil, 0o600), os.Truncate(f, maxInflightBytes+1)); err != nil {
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

func TestReceiverForgetsASenderThatFallsSilentInABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.receiver.Run(ctx) })
		ours, theirs := net.Pipe()
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- b.receiver.Serve(ctx, theirs, "a") }()
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
		wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
		o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 1 << 30}}}
		ours.Write(wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)))
		err := <-ended
		if took := time.Since(began); err == nil || took > senderTimeout*3/2 {
			t.Errorf("ended with %v after %v, want a fault after %v", err, took, senderTimeout)
		}
		if b.receiver.grant(false).RoomBytes != plenty("") {
			t.Errorf("%d bytes of room are still promised", plenty("")-b.receiver.grant(false).RoomBytes)
		}
		cancel()
		running.Wait()
	})
}

func TestReceiverHangsUpOnWhoDoesNotGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		_, theirs := net.Pipe()
		began := time.Now()
		if err := b.receiver.Serve(t.Context(), theirs, "a"); err == nil || time.Since(began) > 2*greetingTimeout {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestReceiverRefusesStreams(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*node)
		says string
		want string
	}{
		"another node's name":  {func(*node) {}, "mallory", "certificate is for"},
		"not admitted":         {func(n *node) { n.refuse = "under notice" }, "a", "under notice"},
		"more streams than it": {func(n *node) { n.receiver.budget.streams = 0 }, "a", "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newNode(t, "b")
			b.receive(t)
			c.set(b)
			ours, theirs := net.Pipe()
			go b.receiver.Serve(t.Context(), theirs, "a")
			ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: c.says}.Append(nil)))
			f, err := wire.NewReader(ours, wire.MaxPayload[wire.FrameRefuse]).Next()
			if err != nil || f.Type != wire.FrameRefuse {
				t.Fatalf("got frame %d, %v, want a refusal", f.Type, err)
			}
			if r, err := wire.ParseRefuse(f.Payload); err != nil || !strings.Contains(r.Reason, c.want) {
				t.Errorf("got %+v, %v, want %q", r, err, c.want)
			}
			ours.Close()
		})
	}
}

// Who is granted a stream is told whether others have one too.
func TestReceiverSaysThatItServesOthers(t *testing.T) {
	b := newNode(t, "b")
	b.receive(t)
	var serving sync.WaitGroup
	defer serving.Wait()
	for _, c := range []struct {
		node   string
		shared bool
	}{{"a", false}, {"a", false}, {"c", true}, {"a", true}} {
		ours, theirs := net.Pipe()
		defer ours.Close()
		serving.Go(func() { b.receiver.Serve(t.Context(), theirs, c.node) })
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: c.node}.Append(nil)))
		f, err := wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
		if err != nil || f.Type != wire.FrameGrant {
			t.Fatalf("got frame %d, %v, want a grant", f.Type, err)
		}
		if g, err := wire.ParseGrant(f.Payload); err != nil || g.Shared != c.shared {
			t.Errorf("%s: got %+v, %v, want shared %t", c.node, g, err, c.shared)
		}
	}
}

// And a drain remembers it, of the newest of its streams.
func TestDrainHearsWhoServesOthers(t *testing.T) {
	p := &peerState{Peer: Peer{Node: "b"}}
	for _, shared := range []bool{true, false} {
		ours, theirs := net.Pipe()
		l := &lane{d: &Drain{cfg: DrainConfig{Node: "a"}}, peer: p, conn: ours}
		go func() {
			wire.NewReader(theirs, wire.MaxPayload[wire.FrameHello]).Next()
			theirs.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1, Shared: shared}.Append(nil)))
		}()
		if err := l.handshake(wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])); err != nil || p.shared != shared || l.room.Most != 1 {
			t.Errorf("got shared %t, room for %d, %v, want shared %t", p.shared, l.room.Most, err, shared)
		}
		ours.Close()
	}
}

// A receiver that is told to stop makes durable what was complete, and says so.
func TestReceiverStoppedStillGivesItsReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNode(t, "b")
		b.receive(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.receiver.Run(ctx) })
		ours, theirs := net.Pipe()
		running.Go(func() { b.receiver.Serve(ctx, theirs, "a") })
		ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
		replies := wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts])
		replies.Next()
		ours.Write(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		cancel()
		f, err := replies.Next()
		if err != nil {
			t.Fatal(err)
		}
		if vs, err := wire.ParseVerdicts(f.Payload); err != nil || len(vs) != 1 || vs[0].Code != wire.VerdictDurable {
			t.Errorf("got %v, %v, want one receipt", vs, err)
		}
		ours.Close()
		running.Wait()
		if !bytes.Equal(b.content(t, "cache/-/x"), contentOf("x", 1000)) {
			t.Error("content differs")
		}
	})
}

// blockFrames is a block of one member of at most a chunk, as a sender would send it.
func blockFrames(transfer uint32, id string, content []byte) []byte {
	return openingFrames(transfer, wire.Opening{ID: id, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(len(content))}}}, content)
}

func openingFrames(transfer uint32, o wire.Opening, content []byte) []byte {
	b := wire.AppendFrame(nil, wire.FrameOpen, transfer, o.Append(nil))
	s := wire.NewSummer()
	s.Member(int64(len(content)))
	for c := range slices.Chunk(content, wire.ChunkBytes) {
		b = wire.AppendFrame(b, wire.FrameData, transfer, c)
		s.Chunk(crc32.Checksum(c, wire.Castagnoli))
	}
	sum := s.Total()
	return wire.AppendFrame(b, wire.FrameClose, transfer, sum[:])
}

// What a sender may not say ends its stream, and nothing of it stays.
func TestReceiverRefusesWrongSequences(t *testing.T) {
	x := contentOf("x", 100)
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 100}}}
	open := wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil))
	data := wire.AppendFrame(nil, wire.FrameData, 1, x)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, sent := range map[string][]byte{
		"data without open":     data,
		"open inside open":      join(open, open),
		"data of another":       join(open, wire.AppendFrame(nil, wire.FrameData, 2, x)),
		"too much data":         join(open, data, data),
		"short chunk":           join(open, wire.AppendFrame(nil, wire.FrameData, 1, x[:99])),
		"close too early":       join(open, wire.AppendFrame(nil, wire.FrameClose, 1, make([]byte, 16))),
		"close with wrong sum":  join(open, data, wire.AppendFrame(nil, wire.FrameClose, 1, make([]byte, 16))),
		"a receipt from sender": wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, nil)),
		"cut inside a block":    join(open, data),
		"garbage":               []byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newNode(t, "b")
			b.receive(t)
			ours, theirs := net.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- b.receiver.Serve(t.Context(), theirs, "a") }()
			ours.Write(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
			wire.NewReader(ours, wire.MaxPayload[wire.FrameGrant]).Next()
			ours.Write(sent)
			ours.Close()
			if err := <-ended; err == nil {
				t.Error("it was taken")
			}
			for h := range b.vault.Held() {
				t.Errorf("%s landed", h.ID)
			}
			if b.receiver.grant(false).RoomBytes != plenty("") || segmentBytesOf(t, b) != 0 {
				t.Errorf("%d bytes promised, %d kept", plenty("")-b.receiver.grant(false).RoomBytes, segmentBytesOf(t, b))
			}
		})
	}
}

func ExampleFullError() {
	fmt.Println(&FullError{NeedBytes: 20972544, HasBytes: 20163584})
	fmt.Println(&FullError{NeedBytes: 20972544, HasBytes: 20971520})
	// Output:
	// full: need 20.0 MiB, has 19.2 MiB
	// full: need 20972544 bytes, has 20971520
}
