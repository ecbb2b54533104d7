package migration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// onDisks is a node whose vault has these directories besides its own, which takes nothing.
func onDisks(t testing.TB, name string, stores []inventory.StoreConfig, vaultDirs ...string) (*node, *fakeDisks) {
	t.Helper()
	n := newNode(t, name, stores...)
	if err := n.vault.Close(); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range vaultDirs {
		n.more = append(n.more, filepath.Join(n.dir, d))
	}
	paths = append(paths, n.more...)
	for _, s := range n.stores {
		paths = append(paths, s.Paths...)
	}
	f := newFakeDisks(1<<30, paths...)
	n.disks, n.room = f, func(p string) int64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return max(0, f.room[p]-f.reserved[p])
	}
	n.open(t)
	return n, f
}

// sender is one stream to a node, by hand.
type sender struct {
	t    testing.TB
	conn net.Conn
	in   *wire.Reader
	over chan error
}

func (n *node) stream(t testing.TB, ctx context.Context) *sender {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &sender{t, ours, wire.NewReader(ours, wire.MaxPayload[wire.FrameReceipts]), make(chan error, 1)}
	go func() { s.over <- n.receiver.Serve(ctx, theirs, "a") }()
	s.send(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil)))
	if f, err := s.in.Next(); err != nil || f.Type != wire.FrameGrant {
		t.Fatalf("no grant: %v, %v", f.Type, err)
	}
	return s
}

func (s *sender) send(b []byte) {
	s.t.Helper()
	if _, err := s.conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

// begin sends a block but for its end, and returns when its landing has begun: the last byte is read only after that.
func (s *sender) begin(frames []byte) (rest []byte) {
	s.t.Helper()
	at := len(frames) - 40
	s.send(frames[:at])
	s.send(frames[at : at+1])
	return frames[at+1:]
}

// verdict is the next one, whatever is heard before of work that goes on.
func (s *sender) verdict() wire.Verdict {
	s.t.Helper()
	for {
		f, err := s.in.Next()
		vs, broken := wire.ParseVerdicts(f.Payload)
		switch {
		case err != nil || broken != nil || len(vs) > 1:
			s.t.Fatalf("got %v, %v, %v, want one verdict", vs, err, broken)
		case len(vs) == 1:
			return vs[0]
		}
	}
}

func (s *sender) wantReceipt() {
	s.t.Helper()
	if v := s.verdict(); v.Code != wire.VerdictDurable {
		s.t.Errorf("transfer %d: %d %s, want a receipt", v.Transfer, v.Code, v.Reason)
	}
}

func (s *sender) wantRefusal(why string) {
	s.t.Helper()
	if v := s.verdict(); v.Code == wire.VerdictDurable || !strings.Contains(v.Reason, why) {
		s.t.Errorf("transfer %d: %d %q, want it refused because %s", v.Transfer, v.Code, v.Reason, why)
	}
}

// receiving runs a node's receiver until stop, which says how long that took.
func (n *node) receiving(t testing.TB) (ctx context.Context, stop func() time.Duration) {
	t.Helper()
	n.receive(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.receiver.Run(ctx) })
	return ctx, func() time.Duration {
		began := time.Now()
		cancel()
		running.Wait()
		return time.Since(began)
	}
}

func segmentsIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "segments", "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func heldIDs(t testing.TB, v *vault.Vault) (ids []string) {
	t.Helper()
	for h, err := range v.Held() {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(h.ID))
	}
	return ids
}

func TestVaultDirectoryThatIsGoneAtStartComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
		f.give(n.more[0], 0)
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
		if a, b := segmentsIn(t, n.more[0]), segmentsIn(t, n.more[1]); len(a) != 1 || len(b) != 1 {
			t.Fatalf("segments %v and %v, want one on each disk", a, b)
		}
		aside := n.more[1] + "-unmounted"
		if err := os.Rename(n.more[1], aside); err != nil {
			t.Fatal(err)
		}
		n.reopen(t)
		if got := heldIDs(t, n.vault); !slices.Equal(got, []string{"cache/-/x"}) {
			t.Errorf("held %v, want x alone", got)
		}
		if _, err := os.Stat(n.more[1]); err == nil {
			t.Error("a directory was made where a disk should be mounted")
		}
		n.landed = nil
		_, stop := n.receiving(t)
		time.Sleep(5 * diskio.LookAfter)
		if err := os.Rename(aside, n.more[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * diskio.LookAfter)
		stop()
		if got := n.landedBlocks(); len(got) != 1 || got[0].ID != "cache/-/y" {
			t.Errorf("told of %v, want y, once", got)
		}
		if got := heldIDs(t, n.vault); len(got) != 2 {
			t.Errorf("held %v, want both", got)
		}
		for _, name := range []string{"x", "y"} {
			if got := n.content(t, "cache/-/"+name); string(got) != string(contentOf(name, 1000)) {
				t.Errorf("%s: %d other bytes", name, len(got))
			}
		}
	})
}

// What lies in a directory that is away may be there: it is not said to be gone, nor forgotten, whoever asks for that.
func TestWhatLiesInADirectoryThatIsAwayIsNotGone(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.give(n.more[0], 0)
	x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
	wantDurable(t, landAll(t, n, x))
	f.give(n.more[0], 1<<30)
	aside := n.more[1] + "-unmounted"
	if err := os.Rename(n.more[1], aside); err != nil {
		t.Fatal(err)
	}
	n.reopen(t)
	nobody := &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{}, nil
	}}
	rd := n.reader()
	rd.Fetch = nobody
	if status, _, _ := get(t, rd, "cache/-/x", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a reader: got %d, want 503", status)
	}
	if status, _, _ := ask(t, rd, http.MethodHead, "/blocks/cache/-/x", http.Header{"Lifeboat-Hop": {"2"}}); status != http.StatusInternalServerError {
		t.Errorf("another agent: got %d, want 500", status)
	}
	flush := n.vault.Flush
	n.vault.Flush = func(*os.File) error { return syscall.EIO }
	if v := landAll(t, n, x); v[0].Code == wire.VerdictDurable {
		t.Errorf("it came again to a disk that takes nothing: got %+v", v)
	}
	n.vault.Flush = flush
	r, err := n.vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatalf("its record is gone: %v; told %q", err, n.why)
	}
	if got := n.asks("cache/-/x", "a", r.Tag()); got != http.StatusServiceUnavailable {
		t.Errorf("its source has it forgotten: got %d, want 503", got)
	}
	if err := os.Rename(aside, n.more[1]); err != nil {
		t.Fatal(err)
	}
	n.reopen(t)
	if got := n.content(t, "cache/-/x"); !bytes.Equal(got, contentOf("x", 1000)) {
		t.Errorf("when it is back: %d other bytes", len(got))
	}
}

// A segment that was begun and never committed while another directory was away may have a number that is in use.
func TestStraySegmentsOfADirectoryThatComesBack(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	f.give(n.vault.Dir, 1<<40)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	f.give(n.vault.Dir, 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
	for _, no := range []uint32{1, 7} { // 1 is x's, on the other disk
		write(t, vault.SegmentFile(n.more[0], no), []byte("begun"))
	}
	n.reopen(t)
	if got := segmentsIn(t, n.more[0]); len(got) != 1 || got[0] != vault.SegmentFile(n.more[0], 2) {
		t.Errorf("segments %v, want the committed one", got)
	}
	for _, name := range []string{"x", "y"} {
		if got := n.content(t, "cache/-/"+name); string(got) != string(contentOf(name, 1000)) {
			t.Errorf("%s: %d other bytes", name, len(got))
		}
	}
}

func TestManySendersAreNeverGrantedMoreThanThereIs(t *testing.T) {
	const blocks, size = 40, 50_000
	n, f := onDisks(t, "b", nil, "d0", "d1")
	for _, d := range n.more {
		f.give(d, 10*size)
	}
	ctx, stop := n.receiving(t)
	var sending sync.WaitGroup
	var durable, full sync.Map
	for i := range blocks / 4 {
		sending.Go(func() {
			s := n.stream(t, ctx)
			defer s.conn.Close()
			for j := range 4 {
				id := fmt.Sprintf("cache/-/f-%d-%d", i, j)
				go s.conn.Write(blockFrames(uint32(j+1), id, contentOf(id, size)))
				switch v := s.verdict(); v.Code {
				case wire.VerdictDurable:
					durable.Store(id, true)
				case wire.VerdictFull:
					full.Store(id, true)
				default:
					t.Errorf("%s: %d %s", id, v.Code, v.Reason)
				}
			}
		})
	}
	sending.Wait()
	stop()
	for d, most := range f.most {
		if most > f.room[d] {
			t.Errorf("%d bytes of %s were promised, there are %d", most, d, f.room[d])
		}
	}
	f.wantNothingReserved(t)
	took := f.flushed[n.more[0]] + f.flushed[n.more[1]]
	if took < size || f.flushed[n.more[0]] == 0 {
		t.Errorf("told of %d bytes flushed", took)
	}
}

// A sync that does not return holds up what lies on its disk and nothing else, and not for ever; what it held up is not kept
// when it returns after all.
func TestHungSyncHoldsOnlyItsOwnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		thaw := make(chan struct{})
		n.vault.Flush = func(file *os.File) error {
			if diskio.Below(file.Name(), n.more[0]) {
				<-thaw
			}
			return nil
		}
		ctx, stop := n.receiving(t)
		one, other := n.stream(t, ctx), n.stream(t, ctx)
		one.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		time.Sleep(time.Second) // x is being synced, on the disk with most room
		f.give(n.more[1], 2<<30)
		began := time.Now()
		for i := range uint32(3) {
			other.send(blockFrames(1+i, fmt.Sprint("cache/-/y", i), contentOf("y", 1000)))
			other.wantReceipt()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the other disk's blocks took %v", took)
		}
		one.wantRefusal(n.more[0] + " does not answer")
		if took := time.Since(began); took > diskio.Overdue+2*diskio.LookAfter {
			t.Errorf("refused after %v, a sender waits %v", took, peerTimeout)
		}
		f.give(n.more[0], 8<<30)
		one.send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
		one.wantReceipt() // though that disk has more room
		one.send(blockFrames(3, "cache/-/w", contentOf("w", 1000)))
		one.wantReceipt()
		close(thaw)
		time.Sleep(time.Second)
		if took := stop(); took > time.Second {
			t.Errorf("stopped after %v", took)
		}
		if got := heldIDs(t, n.vault); len(got) != 5 || len(n.landedBlocks()) != 5 {
			t.Errorf("held %v, told of %d", got, len(n.landedBlocks()))
		}
		f.wantNothingReserved(t)
		r, err := n.vault.Catalog.Get("cache/-/x")
		if dir, _ := n.vault.Home(r.Segment); err != nil || dir != n.more[1] {
			t.Errorf("x lies in %s (%v), want it where it was receipted", dir, err)
		}
	})
}

func TestReceiverStopsThoughASyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		thaw := make(chan struct{})
		n.vault.Flush = func(*os.File) error { <-thaw; return nil }
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		time.Sleep(time.Second)
		go s.wantRefusal("does not answer")
		if took := stop(); took > diskio.Overdue+4*time.Second {
			t.Errorf("stopped after %v", took)
		}
		f.wantNothingReserved(t)
		close(thaw)
		<-s.over
		synctest.Wait()
		if got := heldIDs(t, n.vault); len(got) != 0 {
			t.Errorf("held %v after a refusal", got)
		}
	})
}

// hangs is a disk that takes nothing until it thaws.
type hangs chan struct{}

func (h hangs) WriteBoth(head, tail []byte) (int, error) { <-h; return len(head) + len(tail), nil }

// A write that hangs takes its stream with it, so that the sender goes elsewhere, and leaves everything else alone.
func TestHungWriteEndsItsStream(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told=", told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", nil, "d0", "d1")
				seg, err := n.vault.Acquire(n.more[0])
				if err != nil {
					t.Fatal(err)
				}
				thaw := make(hangs)
				seg.WriteBy(thaw)
				n.vault.Release(seg, false)
				ctx, stop := n.receiving(t)
				s := n.stream(t, ctx)
				began := time.Now()
				s.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
				patience := diskio.Overdue + 2*diskio.LookAfter
				if told {
					time.Sleep(2 * diskio.Suspect)
					f.set(f.bad, n.more[0], true)
					patience = 2*diskio.Suspect + diskio.LookAfter
				}
				for { // a refusal may come before the end
					f, err := s.in.Next()
					if err != nil {
						break
					}
					if vs, _ := wire.ParseVerdicts(f.Payload); slices.ContainsFunc(vs, func(v wire.Verdict) bool { return v.Code == wire.VerdictDurable }) {
						t.Error("a receipt for what hangs")
					}
				}
				if took := time.Since(began); took > patience {
					t.Errorf("the stream ended after %v, want %v", took, patience)
				}
				if err := <-s.over; !diskio.IsSilent(err) && !strings.Contains(fmt.Sprint(err), "does not answer") {
					t.Errorf("got %v", err)
				}
				again := n.stream(t, ctx)
				again.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
				again.wantReceipt()
				if took := stop(); took > 2*diskio.Suspect {
					t.Errorf("stopped after %v", took)
				}
				close(thaw)
				synctest.Wait()
				f.wantNothingReserved(t)
				if f.faults[n.more[0]] == nil {
					t.Error("nobody was told")
				}
			})
		})
	}
}

func TestDiskThatTurnsBadMidReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		x := contentOf("x", 2*wire.ChunkBytes)
		o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: int64(len(x))}}}
		s.send(wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)))
		s.send(wire.AppendFrame(nil, wire.FrameData, 1, x[:wire.ChunkBytes]))
		synctest.Wait()
		f.set(f.bad, n.more[0], true)
		s.send(wire.AppendFrame(nil, wire.FrameData, 1, x[wire.ChunkBytes:]))
		s.wantRefusal(n.more[0] + " takes no blocks any more")
		s.send(wire.AppendFrame(nil, wire.FrameAbort, 1, nil))
		s.send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
		s.wantReceipt()
		f.set(f.full, n.more[1], true)
		f.set(f.full, n.vault.Dir, true)
		s.send(blockFrames(3, "cache/-/y", contentOf("y", 1000)))
		s.wantRefusal("no disk takes blocks")
		s.conn.Close()
		stop()
		f.wantNothingReserved(t)
		if a, b := segmentsIn(t, n.more[0]), segmentsIn(t, n.more[1]); len(a) != 0 || len(b) != 1 {
			t.Errorf("segments %v and %v, want the block on the second disk", a, b)
		}
	})
}

func TestPlaceIsTakenFromTheDisks(t *testing.T) {
	files := with(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "c0", "c1")
	n, f := onDisks(t, "b", []inventory.StoreConfig{files, with(sparkStore, "s0", "s1")}, "v")
	c0, c1 := n.stores[0].Paths[0], n.stores[0].Paths[1]
	f.give(c1, 1<<31)
	for _, name := range []string{"x", "y", "z"} {
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/"+name, contentOf(name, 1000))))
		if _, err := os.Stat(filepath.Join(c1, name)); err != nil {
			t.Errorf("not on the roomiest disk: %v", err)
		}
	}
	// A newer version goes where the older one is, whatever is roomier, or to the vault.
	f.give(c0, 1<<32)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("newer", 1000))))
	if _, err := os.Stat(filepath.Join(c0, "x")); err == nil {
		t.Error("two versions side by side")
	}
	if got := n.content(t, "cache/-/x"); string(got) != string(contentOf("newer", 1000)) {
		t.Error("the older version is read")
	}
	name := "rdd_0_1" // where Spark puts a file is not ours to choose
	root, _ := inventory.SparkPlace(name, 2)
	f.full[n.stores[1].Paths[root]] = true
	o := wire.Opening{ID: "spark/app-1-1/" + name, Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, Members: []wire.MemberSize{{Name: name, Bytes: 1000}}}
	wantDurable(t, landAll(t, n, openingFrames(1, o, contentOf(name, 1000))))
	if r, err := n.vault.Catalog.Get(inventory.BlockID(o.ID)); err != nil || r.Segment == 0 {
		t.Errorf("%v, segment %d, want it in the vault", err, r.Segment)
	}
	f.full[n.stores[1].Paths[root]] = false
	o.ID = "spark/app-1-2/" + name
	wantDurable(t, landAll(t, n, openingFrames(1, o, contentOf(name, 1000))))
	if r, err := n.vault.Catalog.Get(inventory.BlockID(o.ID)); err != nil || r.Segment != 0 {
		t.Errorf("%v, segment %d, want it in place", err, r.Segment)
	}
	f.wantNothingReserved(t)
}
