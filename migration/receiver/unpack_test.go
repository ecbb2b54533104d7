package receiver

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func etagOf(t testing.TB, h http.Handler, id string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/blocks/"+id, nil))
	if w.Code != http.StatusOK {
		t.Errorf("HEAD %s: %d", id, w.Code)
	}
	return w.Header().Get("ETag")
}

// A small block gets its receipt as soon as its segment is synced, and becomes a file once no block has come for a moment.
// A large block is a file at once.
func TestSmallBlocksBecomeFilesWhenTheNodeIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		n.packs = true
		ctx, stop := n.receiving(t)
		defer stop()
		want := map[string][]byte{}
		s := n.stream(t, ctx)
		for i := range 5 {
			id := fmt.Sprintf("cache/-/d/f-%d", i)
			want[id] = contentOf(id, 1000*i)
			s.Send(blockFrames(uint32(i+1), id, want[id]))
			s.WantReceipt()
		}
		n.WantPacked(t, want)
		wantWaiting(t, n, 5, 0)
		etag := etagOf(t, n.Reader(), "cache/-/d/f-3")
		large := contentOf("large", PackedBytes+1)
		s.Send(blockFrames(9, "cache/-/large", large))
		s.WantReceipt()
		want["cache/-/large"] = large
		if r, err := n.Vault.Catalog.Get("cache/-/large"); err != nil || r.Segment != 0 {
			t.Errorf("a large block: %v, segment %d, want it in place", err, r.Segment)
		}
		s.Conn.Close()
		time.Sleep(lull + time.Second)
		synctest.Wait()
		n.WantFiles(t, want)
		wantWaiting(t, n, 0, 0)
		if got := etagOf(t, n.Reader(), "cache/-/d/f-3"); got != etag {
			t.Errorf("the ETag was %s and is %s", etag, got)
		}
	})
}

// The directories in a block's name take space that no quota counts. A block that lies too deep stays in a segment, and is served
// from there.
func TestNameOfManyDirectoriesStaysInItsSegment(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	n.packs = true
	want := map[string][]byte{}
	var frames [][]byte
	for i, size := range []int{100, PackedBytes + 1} {
		for _, deep := range []int{deepest, deepest + 1} {
			id := fmt.Sprint("cache/-/", strings.Repeat("d/", deep), "f", size)
			want[id] = contentOf(id, size)
			frames = append(frames, blockFrames(uint32(2*i+deep), id, want[id]))
		}
	}
	wantDurable(t, landAll(t, n, frames...))
	n.receive(t)
	n.unpack()
	for id, content := range want {
		r, err := n.Vault.Catalog.Get(inventory.BlockID(id))
		if deep := strings.Count(id, "d/") > deepest; err != nil || deep != (r.Segment != 0) {
			t.Errorf("%s: %v, in segment %d, want it there only if it lies deeper than %d", id, err, r.Segment, deepest)
		}
		if !bytes.Equal(n.Content(t, id), content) {
			t.Errorf("%s has other bytes", id)
		}
	}
	wantWaiting(t, n, 0, 0)
}

// If blocks come without a pause, the first ones become files nevertheless.
func TestStreamsThatGoOnKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		ctx, stop := n.receiving(t)
		defer stop()
		s := n.stream(t, ctx)
		defer s.Conn.Close()
		began := time.Now()
		for i := 0; time.Since(began) < unpackPatience+time.Second; i++ {
			s.Send(blockFrames(uint32(i+1), fmt.Sprintf("cache/-/f-%d", i), []byte("x")))
			s.WantReceipt()
			if _, err := os.Stat(n.File("cache/-/f-0")); err == nil && time.Since(began) < unpackPatience {
				t.Fatalf("unpacked after %v, while streams are busy", time.Since(began))
			}
			time.Sleep(lull / 4)
		}
		if _, err := os.Stat(n.File("cache/-/f-0")); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A crash comes after each step. No file has a name that it should not have, every block is read as it came, and the
// next start finishes the work.
func TestUnpackingKilledAtEachStep(t *testing.T) {
	publish := func(n *node, moves []*move) {
		publish(n.Stores[0], intoOf(moves), nil, n.Vault.Catalog, n.receiver.disks, new(diskio.Work))
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
			for _, change := range []error{os.Truncate(n.File(moves[0].was.ID), 10), os.Chtimes(n.File(moves[0].was.ID), at, at)} {
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
			n.Reopen(t)
			n.receive(t)
			for id, content := range want {
				if got := n.Content(t, id); !bytes.Equal(got, content) {
					t.Errorf("%s: %d other bytes are read after the crash", id, len(got))
				}
				got, err := os.ReadFile(n.File(id))
				if err == nil && !bytes.Equal(got, content) && !strings.Contains(name, "lost its bytes") {
					t.Errorf("%s: half a file has its name", id)
				}
			}
			n.unpack()
			n.receiver.tidyOnce(t.Context(), time.Now()) // as at the start
			n.WantFiles(t, want)
			wantWaiting(t, n, 0, 0)
		})
	}
}

func staged(t testing.TB, n *node, u *unpacker) (moves []*move) {
	t.Helper()
	from := vault.NewReplay(n.Vault)
	defer from.Close()
	for r, err := range n.Vault.Catalog.All() {
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

// letGo does what ends a group.
func letGo(n *node, moves []*move) {
	for _, m := range moves {
		m.room()
		n.Vault.Unclaim(inventory.BlockID(m.was.ID))
	}
}

func intoOf(moves []*move) (blocks []*landed) {
	for _, m := range moves {
		blocks = append(blocks, m.into)
	}
	return blocks
}

// A file that did not land is never overwritten, even if it looks the same. The block is read from its segment, and
// becomes a file when the name is free.
func TestFileInTheWayOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, want := packed(t, 20, 500)
		const id = "cache/-/d3/f-0003"
		write(t, n.File(id), want[id]) // as a copying tool of the fleet's owner would
		const other = "cache/-/d4/f-0004"
		write(t, n.File(other), []byte("mine"))
		was, err := os.Stat(n.File(id))
		if err != nil {
			t.Fatal(err)
		}
		var log nodetest.Notes
		n.tune = func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		_, stop := n.receiving(t)
		time.Sleep(unpackPatience)
		wantWaiting(t, n, 2, 2)
		for _, id := range []string{id, other} {
			if got := n.Content(t, id); !bytes.Equal(got, want[id]) {
				t.Errorf("%s: %q is read", id, got)
			}
		}
		if got, _ := os.ReadFile(n.File(other)); string(got) != "mine" {
			t.Error("a file was overwritten")
		}
		if now, err := os.Stat(n.File(id)); err != nil || !os.SameFile(was, now) {
			t.Errorf("a file was replaced by its like: %v", err)
		}
		if got := log.Count("is in the way"); got != 1 {
			t.Errorf("said %d times that something is in the way", got)
		}
		if err := os.Remove(n.File(other)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recheckEvery + time.Second)
		if got, err := os.ReadFile(n.File(other)); err != nil || !bytes.Equal(got, want[other]) {
			t.Errorf("nothing is in the way any more, and there are %d bytes, %v", len(got), err)
		}
		wantWaiting(t, n, 1, 1)
		stop()
		n.receiver.Remove(t.Context(), "at an operator's word", func(vault.Held) bool { return true })
		if got, _ := os.ReadFile(n.File(id)); !bytes.Equal(got, want[id]) {
			t.Error("what was the node's own went with the block")
		}
	})
}

// A file comes into the way at the last moment: the announced record is taken back.
func TestFileThatComesIntoTheWay(t *testing.T) {
	n, want := packed(t, 3, 500)
	n.receive(t)
	u := n.receiver.unpackers.all[0]
	moves := staged(t, n, u)
	const id = "cache/-/d1/f-0001"
	write(t, n.File(id), []byte("mine"))
	made, err := u.put(moves)
	letGo(n, moves)
	if err != nil || made.Blocks != 2 {
		t.Errorf("made %d files, %v, want two", made.Blocks, err)
	}
	wantWaiting(t, n, 1, 1)
	if r, err := n.Vault.Catalog.Get(id); err != nil || r.Segment == 0 || len(r.Placed) != 0 {
		t.Errorf("%v, segment %d, placed %v, want it in its segment alone", err, r.Segment, r.Placed)
	}
	if got, _ := os.ReadFile(n.File(id)); string(got) != "mine" {
		t.Error("a file was overwritten")
	}
	if got := n.Content(t, id); !bytes.Equal(got, want[id]) {
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
		"large, before":                         {PackedBytes + 5, false, "moved or removed"},
		"large, after":                          {PackedBytes + 5, true, "moved or removed"},
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
			rest := s.Begin(frames)
			if c.announced {
				moves = announced(t, u, moves)
			}
			s.Send(rest)
			switch v := s.Verdict(); {
			case c.said == "" && v.Code != wire.VerdictDurable, c.said != "" && !strings.Contains(v.Reason, c.said):
				t.Errorf("got %d %q, want %q", v.Code, v.Reason, c.said)
			}
			made, err := u.put(moves)
			letGo(n, moves)
			if err != nil {
				t.Errorf("made %d files, %v", made.Blocks, err)
			}
			if c.said != "" { // the sender sends it again
				s.Send(blockFrames(2, id, want[id]))
				s.WantReceipt()
			}
			s.Conn.Close()
			<-s.Over
			if got := n.Content(t, id); !bytes.Equal(got, want[id]) {
				t.Errorf("%d bytes of another version are read", len(got))
			}
			n.unpack()
			n.receiver.tidyOnce(t.Context(), time.Now())
			n.WantFiles(t, want)
		})
	}
}

// A newer version begins to land while the files of the older one are being announced. In the end the version that has a
// receipt is there, and no other lies beside it.
func TestNewerVersionWhileFilesAreAnnounced(t *testing.T) {
	n, want := packed(t, 3, 700)
	const id = "cache/-/d1/f-0001"
	n.receive(t)
	u := n.receiver.unpackers.all[0]
	moves := staged(t, n, u)
	want[id] = contentOf("newer", 900)
	s := n.stream(t, t.Context())
	writing, err := n.Vault.Catalog.DB().Begin(true) // the announcement waits for this transaction
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Rollback() // else the vault could not be closed after a failure
	var announcing sync.WaitGroup
	announcing.Go(func() { moves, err = u.announce(moves) })
	for n.Vault.Catalog.Writing.TryLock() {
		n.Vault.Catalog.Writing.Unlock()
		runtime.Gosched()
	}
	rest := s.Begin(blockFrames(1, id, want[id]))
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if announcing.Wait(); err != nil {
		t.Fatal(err)
	}
	s.Send(rest)
	refused := s.Verdict().Code != wire.VerdictDurable
	publish(n.Stores[0], intoOf(moves), nil, n.Vault.Catalog, n.receiver.disks, new(diskio.Work))
	if _, err := u.settle(moves); err != nil {
		t.Error(err)
	}
	letGo(n, moves)
	if refused {
		s.Send(blockFrames(2, id, want[id]))
		s.WantReceipt()
	}
	s.Conn.Close()
	<-s.Over
	n.unpack()
	n.receiver.tidyOnce(t.Context(), time.Now())
	n.WantFiles(t, want)
	wantWaiting(t, n, 0, 0)
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
			n.remove(t, func(h vault.Held) bool { return h.ID == id }) // as the next tidying does
			n.unpack()
			delete(want, id)
			n.WantFiles(t, want)
			if _, err := os.Stat(n.File(id)); err == nil {
				t.Error("the file of a removed block stays")
			}
		})
	}
}

// A group of blocks took twenty seconds on a slow disk, while the last blocks landed. The unpacker pauses no longer than blocks land.
func TestUnpackingPausesOnlyWhileBlocksLand(t *testing.T) {
	for _, land := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			us := &unpackers{streams: &streams{}}
			u, began := &unpacker{of: us}, time.Now()
			landing := make(chan struct{})
			go func() {
				defer close(landing)
				for us.lately.Note(time.Now()); time.Since(began) < min(land, 2*time.Minute); us.lately.Note(time.Now()) {
					time.Sleep(lull / 5)
				}
			}()
			synctest.Wait()
			u.rest(t.Context(), 20*time.Second)
			if took, most := time.Since(began), min(land+2*lull, (unpackShare-1)*20*time.Second); took > most || took < min(land, most) {
				t.Errorf("blocks land for %s: it pauses for %s, want %s at most", land, took, most)
			}
			<-landing
		})
	}
}
