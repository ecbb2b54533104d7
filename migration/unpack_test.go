package migration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

var placedFiles = inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}

// unpack makes files of what waits, whatever the time.
func (n *node) unpack() {
	for _, u := range n.receiver.unpackers.all {
		u.mu.Lock()
		u.missed = true
		u.mu.Unlock()
		u.pass(context.Background())
	}
}

// packed is a node with a store that wants files, where small blocks rest in a segment, and what they are.
func packed(t testing.TB, count, size int) (*node, map[string][]byte) {
	t.Helper()
	n := newNode(t, "b", with(placedFiles, "cache"))
	return n, n.pack(t, count, size)
}

func (n *node) pack(t testing.TB, count, size int) map[string][]byte {
	t.Helper()
	n.packs = true
	want := map[string][]byte{}
	var frames [][]byte
	for i := range count {
		id := fmt.Sprintf("cache/-/d%d/f-%04d", i%7, i)
		want[id] = contentOf(id, size)
		frames = append(frames, blockFrames(uint32(i+1), id, want[id]))
	}
	wantDurable(t, landAll(t, n, frames...))
	n.wantPacked(t, want)
	return want
}

// underNotice is whether the receivers that the node has from now on are under notice.
func (n *node) underNotice() *atomic.Bool {
	var is atomic.Bool
	n.tune = func(cfg *ReceiverConfig) {
		cfg.Admit = func(string, bool) Admission {
			if is.Load() {
				return Admission{Refused: "this node is under notice itself"}
			}
			return Admission{}
		}
	}
	return &is
}

// notes are a log that is read while it is written.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *notes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *notes) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// wantPacked checks that blocks are read from their segments, and that no file has the name of one.
func (n *node) wantPacked(t testing.TB, want map[string][]byte) {
	t.Helper()
	for id, content := range want {
		if r, err := n.vault.Catalog.Get(inventory.BlockID(id)); err != nil || r.Segment == 0 {
			t.Errorf("%s: %v, segment %d, want it in one", id, err, r.Segment)
		}
		if _, err := os.Stat(n.file(id)); err == nil {
			t.Errorf("%s is a file already", id)
		}
		if got := n.content(t, id); !bytes.Equal(got, content) {
			t.Errorf("%s: %d other bytes are read", id, len(got))
		}
	}
}

// wantFiles checks that blocks are files in their place, are read from there, and take no other space.
func (n *node) wantFiles(t testing.TB, want map[string][]byte) {
	t.Helper()
	for id, content := range want {
		if r, err := n.vault.Catalog.Get(inventory.BlockID(id)); err != nil || r.Segment != 0 || len(r.Placed) != 1 {
			t.Errorf("%s: %v, segment %d, placed %v, want it in place", id, err, r.Segment, r.Placed)
		}
		if got, err := os.ReadFile(n.file(id)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: a file of %d bytes, %v", id, len(got), err)
		}
		if got := n.content(t, id); !bytes.Equal(got, content) {
			t.Errorf("%s: %d other bytes are read", id, len(got))
		}
	}
	if got := segmentsIn(t, n.vault.Dir); len(got) != 0 {
		t.Errorf("nothing is of use in %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(n.dir, "cache", inventory.StagingDir, "*")); len(left) != 0 {
		t.Errorf("%v are staged still", left)
	}
	if got := n.vault.Count().Blocks; got != int64(len(want)) {
		t.Errorf("holds %d blocks, want %d", got, len(want))
	}
}

func (n *node) file(id string) string {
	return filepath.Join(n.dir, "cache", inventory.BlockID(id).Name())
}

func etagOf(t testing.TB, h http.Handler, id string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/blocks/"+id, nil))
	if w.Code != http.StatusOK {
		t.Errorf("HEAD %s: %d", id, w.Code)
	}
	return w.Header().Get("ETag")
}

func wantWaiting(t testing.TB, n *node, blocks, occupied int64) {
	t.Helper()
	if got := n.receiver.Unpacking(); got.Waiting.Blocks != blocks || got.Occupied.Blocks != occupied {
		t.Errorf("%d blocks wait, in the way of %d is something, want %d and %d", got.Waiting.Blocks, got.Occupied.Blocks, blocks, occupied)
	}
}

// A small block has its receipt as soon as its segment is synced, and becomes a file once nothing has come for a moment. A
// large one is a file at once.
func TestSmallBlocksBecomeFilesWhenTheNodeIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placedFiles, "cache"))
		n.packs = true
		ctx, stop := n.receiving(t)
		defer stop()
		want := map[string][]byte{}
		s := n.stream(t, ctx)
		for i := range 5 {
			id := fmt.Sprintf("cache/-/d/f-%d", i)
			want[id] = contentOf(id, 1000*i)
			s.send(blockFrames(uint32(i+1), id, want[id]))
			s.wantReceipt()
		}
		n.wantPacked(t, want)
		wantWaiting(t, n, 5, 0)
		etag := etagOf(t, n.reader(), "cache/-/d/f-3")
		large := contentOf("large", packedBytes+1)
		s.send(blockFrames(9, "cache/-/large", large))
		s.wantReceipt()
		want["cache/-/large"] = large
		if r, err := n.vault.Catalog.Get("cache/-/large"); err != nil || r.Segment != 0 {
			t.Errorf("a large block: %v, segment %d, want it in place", err, r.Segment)
		}
		s.conn.Close()
		time.Sleep(lull + time.Second)
		synctest.Wait()
		n.wantFiles(t, want)
		wantWaiting(t, n, 0, 0)
		if got := etagOf(t, n.reader(), "cache/-/d/f-3"); got != etag {
			t.Errorf("the ETag was %s and is %s", etag, got)
		}
	})
}

// Where blocks come without a pause, those that came first become files nevertheless.
func TestStreamsThatGoOnKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placedFiles, "cache"))
		ctx, stop := n.receiving(t)
		defer stop()
		s := n.stream(t, ctx)
		defer s.conn.Close()
		began := time.Now()
		for i := 0; time.Since(began) < unpackPatience+time.Second; i++ {
			s.send(blockFrames(uint32(i+1), fmt.Sprintf("cache/-/f-%d", i), []byte("x")))
			s.wantReceipt()
			if _, err := os.Stat(n.file("cache/-/f-0")); err == nil && time.Since(began) < unpackPatience {
				t.Fatalf("unpacked after %v, while streams are busy", time.Since(began))
			}
			time.Sleep(lull / 4)
		}
		if _, err := os.Stat(n.file("cache/-/f-0")); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestMapOutputsAreUnpackedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes that the node could take for quiet
		a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0", "d1"))
		manager := filepath.Join(a.dir, "d0/application_1_1/blockmgr-x")
		var all []map[string][]byte
		for m := range 30 {
			all = append(all, writeMapOutput(t, []string{manager}, 1, m, 100*m, 50))
		}
		b.packs = true
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1 // of two, one may cut the other's farewell short, and a pipe has no other: that takes seconds
		tr.run(within(t, 20*time.Second))
		if got := carriedIn(t, b.stores[0]); got != nil {
			t.Errorf("before they are unpacked the store has %s", got)
		}
		wantWaiting(t, b, 30, 0)
		b.unpack()
		wantWaiting(t, b, 0, 0)
		mine := []string{filepath.Join(b.dir, "d0/application_1_1/blockmgr-lifeboat"), filepath.Join(b.dir, "d1/application_1_1/blockmgr-lifeboat")}
		for _, files := range all {
			for name, content := range files {
				if got, err := os.ReadFile(spot(mine, name)); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
			}
		}
		if got := len(carriedIn(t, b.stores[0])); got != 30 {
			t.Errorf("%d map outputs are seen, want 30", got)
		}
	})
}

// A crash comes after each of the steps. No file has a name that it should not have, every block is read as it came, and
// the next start ends the work.
func TestUnpackingKilledAtEachStep(t *testing.T) {
	publish := func(n *node, moves []*move) {
		publish(n.stores[0], intoOf(moves), n.vault.Catalog, n.receiver.disks, new(diskio.Work))
	}
	for name, upTo := range map[string]func(t *testing.T, n *node, u *unpacker, moves []*move){
		"staged": func(*testing.T, *node, *unpacker, []*move) {},
		"announced": func(t *testing.T, _ *node, u *unpacker, moves []*move) {
			announced(t, u, moves)
		},
		"some published": func(t *testing.T, n *node, u *unpacker, moves []*move) {
			publish(n, announced(t, u, moves)[:10])
		},
		"published": func(t *testing.T, n *node, u *unpacker, moves []*move) {
			publish(n, announced(t, u, moves))
		},
		"published, and one lost its bytes": func(t *testing.T, n *node, u *unpacker, moves []*move) {
			publish(n, announced(t, u, moves))
			at := time.Unix(0, moves[0].into.Placed[0].ModTime)
			for _, change := range []error{os.Truncate(n.file(moves[0].was.ID), 10), os.Chtimes(n.file(moves[0].was.ID), at, at)} {
				if change != nil {
					t.Fatal(change)
				}
			}
		},
		"settled": func(t *testing.T, n *node, u *unpacker, moves []*move) {
			moves = announced(t, u, moves)
			publish(n, moves)
			if made, err := u.settle(moves); err != nil || made.Blocks != 30 {
				t.Fatalf("settled %d, %v", made.Blocks, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, want := packed(t, 30, 3000)
			u := n.receiver.unpackers.all[0]
			upTo(t, n, u, staged(t, n, u))
			n.reopen(t)
			n.receive(t)
			for id, content := range want {
				if got := n.content(t, id); !bytes.Equal(got, content) {
					t.Errorf("%s: %d other bytes are read after the crash", id, len(got))
				}
				got, err := os.ReadFile(n.file(id))
				if err == nil && !bytes.Equal(got, content) && !strings.Contains(name, "lost its bytes") {
					t.Errorf("%s: half a file has its name", id)
				}
			}
			n.unpack()
			n.receiver.tidyOnce(t.Context(), time.Now()) // as at the start
			n.wantFiles(t, want)
			wantWaiting(t, n, 0, 0)
		})
	}
}

func staged(t testing.TB, n *node, u *unpacker) (moves []*move) {
	t.Helper()
	from := vault.NewReplay(n.vault)
	defer from.Close()
	for r, err := range n.vault.Catalog.All() {
		if err != nil {
			t.Fatal(err)
		}
		m, err := u.stage(from, r)
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, m)
	}
	return moves
}

func announced(t testing.TB, u *unpacker, moves []*move) []*move {
	t.Helper()
	still, err := u.announce(moves)
	if err != nil {
		t.Fatal(err)
	}
	return still
}

// letGo is what ends a group.
func letGo(n *node, moves []*move) {
	for _, m := range moves {
		m.room()
		n.vault.Unclaim(inventory.BlockID(m.was.ID))
	}
}

func intoOf(moves []*move) (blocks []*landed) {
	for _, m := range moves {
		blocks = append(blocks, m.into)
	}
	return blocks
}

// What never landed here is never overwritten, even if it looks the same. The block is read from its segment, and becomes
// a file when the name is free.
func TestFileInTheWayOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, want := packed(t, 20, 500)
		const id = "cache/-/d3/f-0003"
		write(t, n.file(id), want[id]) // as a copy of the fleet's own tools would be
		const other = "cache/-/d4/f-0004"
		write(t, n.file(other), []byte("mine"))
		was, err := os.Stat(n.file(id))
		if err != nil {
			t.Fatal(err)
		}
		var log notes
		n.tune = func(cfg *ReceiverConfig) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		_, stop := n.receiving(t)
		time.Sleep(unpackPatience)
		wantWaiting(t, n, 2, 2)
		for _, id := range []string{id, other} {
			if got := n.content(t, id); !bytes.Equal(got, want[id]) {
				t.Errorf("%s: %q is read", id, got)
			}
		}
		if got, _ := os.ReadFile(n.file(other)); string(got) != "mine" {
			t.Error("a file was overwritten")
		}
		if now, err := os.Stat(n.file(id)); err != nil || !os.SameFile(was, now) {
			t.Errorf("a file was replaced by its like: %v", err)
		}
		if got := log.count("is in the way"); got != 1 {
			t.Errorf("said %d times that something is in the way", got)
		}
		if err := os.Remove(n.file(other)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recheckEvery + time.Second)
		if got, err := os.ReadFile(n.file(other)); err != nil || !bytes.Equal(got, want[other]) {
			t.Errorf("nothing is in the way any more, and there are %d bytes, %v", len(got), err)
		}
		wantWaiting(t, n, 1, 1)
		stop()
		n.receiver.Remove(t.Context(), "at an operator's word", func(vault.Held) bool { return true })
		if got, _ := os.ReadFile(n.file(id)); !bytes.Equal(got, want[id]) {
			t.Error("what was the node's own went with the block")
		}
	})
}

// A file comes into the way at the last moment: what was announced is taken back.
func TestFileThatComesIntoTheWay(t *testing.T) {
	n, want := packed(t, 3, 500)
	n.receive(t)
	u := n.receiver.unpackers.all[0]
	moves := staged(t, n, u)
	const id = "cache/-/d1/f-0001"
	write(t, n.file(id), []byte("mine"))
	made, err := u.put(moves)
	letGo(n, moves)
	if err != nil || made.Blocks != 2 {
		t.Errorf("made %d files, %v, want two", made.Blocks, err)
	}
	wantWaiting(t, n, 1, 1)
	if r, err := n.vault.Catalog.Get(id); err != nil || r.Segment == 0 || len(r.Placed) != 0 {
		t.Errorf("%v, segment %d, placed %v, want it in its segment alone", err, r.Segment, r.Placed)
	}
	if got, _ := os.ReadFile(n.file(id)); string(got) != "mine" {
		t.Error("a file was overwritten")
	}
	if got := n.content(t, id); !bytes.Equal(got, want[id]) {
		t.Errorf("%d other bytes are read", len(got))
	}
}

// A newer version lands while files are made of the older one. It wins, whenever it comes.
func TestNewerVersionWhileUnpacking(t *testing.T) {
	for name, c := range map[string]struct {
		size      int
		announced bool
		said      string
	}{
		"small, before the files are announced": {900, false, ""},
		"small, after that":                     {900, true, "moved or removed"},
		"large, before":                         {packedBytes + 5, false, "moved or removed"},
		"large, after":                          {packedBytes + 5, true, "moved or removed"},
	} {
		t.Run(name, func(t *testing.T) {
			n, want := packed(t, 3, 700)
			const id = "cache/-/d1/f-0001"
			n.receive(t)
			u := n.receiver.unpackers.all[0]
			moves := staged(t, n, u)
			want[id] = contentOf("newer", c.size)
			// Its landing has begun before the files are announced, and ends after.
			s := n.stream(t, t.Context())
			frames := blockFrames(1, id, want[id])
			rest := s.begin(frames)
			if c.announced {
				moves = announced(t, u, moves)
			}
			s.send(rest)
			switch v := s.verdict(); {
			case c.said == "" && v.Code != wire.VerdictDurable, c.said != "" && !strings.Contains(v.Reason, c.said):
				t.Errorf("got %d %q, want %q", v.Code, v.Reason, c.said)
			}
			made, err := u.put(moves)
			letGo(n, moves)
			if err != nil {
				t.Errorf("made %d files, %v", made.Blocks, err)
			}
			if c.said != "" { // so the sender sends it again
				s.send(blockFrames(2, id, want[id]))
				s.wantReceipt()
			}
			s.conn.Close()
			<-s.over
			if got := n.content(t, id); !bytes.Equal(got, want[id]) {
				t.Errorf("%d bytes of another version are read", len(got))
			}
			n.unpack()
			n.receiver.tidyOnce(t.Context(), time.Now())
			n.wantFiles(t, want)
		})
	}
}

// A newer version begins to land while it is being written down what the files of the older one will be. What its sender
// has a receipt for is there in the end, and nothing lies beside it.
func TestNewerVersionWhileFilesAreAnnounced(t *testing.T) {
	n, want := packed(t, 3, 700)
	const id = "cache/-/d1/f-0001"
	n.receive(t)
	u := n.receiver.unpackers.all[0]
	moves := staged(t, n, u)
	want[id] = contentOf("newer", 900)
	s := n.stream(t, t.Context())
	writing, err := n.vault.Catalog.DB().Begin(true) // the announcement waits for it
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Rollback() // or no vault could be closed after a failure
	var announcing sync.WaitGroup
	announcing.Go(func() { moves, err = u.announce(moves) })
	for n.vault.Catalog.Writing.TryLock() {
		n.vault.Catalog.Writing.Unlock()
		runtime.Gosched()
	}
	rest := s.begin(blockFrames(1, id, want[id]))
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if announcing.Wait(); err != nil {
		t.Fatal(err)
	}
	s.send(rest)
	refused := s.verdict().Code != wire.VerdictDurable
	publish(n.stores[0], intoOf(moves), n.vault.Catalog, n.receiver.disks, new(diskio.Work))
	if _, err := u.settle(moves); err != nil {
		t.Error(err)
	}
	letGo(n, moves)
	if refused {
		s.send(blockFrames(2, id, want[id]))
		s.wantReceipt()
	}
	s.conn.Close()
	<-s.over
	n.unpack()
	n.receiver.tidyOnce(t.Context(), time.Now())
	n.wantFiles(t, want)
	wantWaiting(t, n, 0, 0)
}

// The disk on which an older version lies takes no more. The newer one is refused, so that its sender goes elsewhere: beside the
// older one in its place it would be passed over by the next drain.
func TestNewerVersionWhereTheOlderHasNoRoom(t *testing.T) {
	n, want := packed(t, 3, 700)
	n.unpack()
	const id = "cache/-/d1/f-0001"
	newer := blockFrames(1, id, contentOf("newer", 900))
	n.room = func(p string) int64 {
		if strings.HasSuffix(p, "cache") {
			return 10
		}
		return 1 << 40
	}
	n.receive(t)
	s := n.stream(t, t.Context())
	s.send(newer)
	if v := s.verdict(); v.Code == wire.VerdictDurable || !strings.Contains(v.Reason, "full") {
		t.Errorf("got %d %q, want it refused because the disk is full", v.Code, v.Reason)
	}
	s.conn.Close()
	<-s.over
	n.wantFiles(t, want)

	n.room = plenty
	n.receive(t)
	s = n.stream(t, t.Context())
	s.send(newer)
	s.wantReceipt()
	s.conn.Close()
	<-s.over
	want[id] = contentOf("newer", 900)
	n.unpack()
	n.wantFiles(t, want)
	c := newNode(t, "c")
	_, entries := n.drain(t, within(t, time.Minute), c)
	wantThere(t, want, entries, c)
}

func TestBlockThatIsRemovedWhileItIsUnpacked(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("announced=", after), func(t *testing.T) {
			n, want := packed(t, 3, 700)
			const id = "cache/-/d1/f-0001"
			u := n.receiver.unpackers.all[0]
			moves := staged(t, n, u)
			if after {
				moves = announced(t, u, moves)
			}
			n.remove(t, func(h vault.Held) bool { return h.ID == id })
			if _, err := u.put(moves); err != nil {
				t.Error(err)
			}
			letGo(n, moves)
			n.remove(t, func(h vault.Held) bool { return h.ID == id }) // as the next look at what is kept does
			n.unpack()
			delete(want, id)
			n.wantFiles(t, want)
			if _, err := os.Stat(n.file(id)); err == nil {
				t.Error("the file of a removed block stays")
			}
		})
	}
}
