package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func TestVaultKeepsWhatItReceiptedAndNothingElse(t *testing.T) {
	n := newNode(t, "b")
	x := contentOf("x", 1000)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", x)))
	whole := n.SegmentBytes(t)
	// A crash in the middle: a segment is longer than the catalog knows, and there is one that the catalog does not
	// know.
	f, err := os.OpenFile(n.SegmentPath(1), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(blockFrames(2, "cache/-/y", x)[:700])
	f.Close()
	write(t, n.SegmentPath(2), blockFrames(1, "cache/-/z", x))
	n.Reopen(t)
	if got := n.SegmentBytes(t); got != whole {
		t.Errorf("segments have %d bytes, want the %d receipted", got, whole)
	}
	if _, err := os.Stat(n.SegmentPath(2)); err == nil {
		t.Error("a segment that was never committed is still there")
	}
	if status, got, _ := n.Get(t, "cache/-/x", ""); status != 200 || !bytes.Equal(got, x) {
		t.Errorf("what was receipted: status %d, %d bytes", status, len(got))
	}
	for _, id := range []string{"cache/-/y", "cache/-/z"} {
		if status, _, _ := n.Get(t, id, ""); status != 404 {
			t.Errorf("%s was never receipted: status %d", id, status)
		}
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
	for id, want := range map[string][]byte{"cache/-/x": x, "cache/-/y": contentOf("y", 1000)} {
		if got := n.Content(t, id); !bytes.Equal(got, want) {
			t.Errorf("%s after a restart and another landing: %d bytes", id, len(got))
		}
	}
}

// A segment that somebody removed is not replaced by another of its number: its blocks would get other blocks' bytes.
func TestVaultNeverGivesASegmentsNumberAway(t *testing.T) {
	n := newNode(t, "b")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	if err := os.Remove(n.SegmentPath(1)); err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
	if status, body, _ := n.Get(t, "cache/-/x", ""); status != 500 {
		t.Errorf("a block whose segment is gone: status %d, %d bytes", status, len(body))
	}
	// If somebody does that by hand, the block's own id in the segment shows it.
	if err := os.Link(n.SegmentPath(2), n.SegmentPath(1)); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := n.Get(t, "cache/-/x", ""); status != 500 {
		t.Errorf("a block in whose place another lies: status %d, %d bytes", status, len(body))
	}
}

func TestCorruptBytesAreNeverServed(t *testing.T) {
	x := contentOf("x", 3*wire.ChunkBytes)
	bigFrames := func(id, layout string) []byte {
		o := wire.Opening{ID: id, Kind: inventory.KindCache, Layout: layout, ModTime: 1e18, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(len(x))}}}
		b := wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil))
		s := wire.NewSummer()
		s.Member(int64(len(x)))
		for c := range slices.Chunk(x, wire.ChunkBytes) {
			b = wire.AppendFrame(b, wire.FrameData, 1, c)
			f, _ := wire.NewReader(bytes.NewReader(wire.AppendFrame(nil, wire.FrameData, 1, c)), wire.ChunkBytes).Next()
			s.Chunk(f.Sum)
		}
		sum := s.Total()
		return wire.AppendFrame(b, wire.FrameClose, 1, sum[:])
	}
	for where, c := range map[string]struct {
		store inventory.StoreConfig
		dir   string
	}{
		"in a segment":     {with(filesStore, "cache"), "vault/segments"},
		"in a placed file": {with(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "cache"), "cache"},
	} {
		for at, name := range map[int]string{5: "first", wire.ChunkBytes + 5: "second"} {
			t.Run(name+" chunk "+where, func(t *testing.T) {
				n := newNode(t, "b", c.store)
				wantDurable(t, landAll(t, n, bigFrames("cache/-/x", inventory.LayoutFiles)))
				if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, x) {
					t.Fatal("not served whole before")
				}
				flip(t, filepath.Join(n.Dir, c.dir), x[at:at+100], 0)
				status, body, _ := n.Get(t, "cache/-/x", "")
				if at == 5 && status != 500 || at != 5 && status != -1 {
					t.Errorf("status %d", status)
				}
				if status != 500 && !bytes.HasPrefix(x, body) {
					t.Errorf("%d bytes went out, and they are not the block's", len(body))
				}
				// A range that does not touch the chunk is served, as long as the first chunk is well.
				if status, body, _ := n.Get(t, "cache/-/x", "bytes=-10"); at != 5 && (status != 206 || !bytes.Equal(body, x[len(x)-10:])) {
					t.Errorf("another chunk: status %d, %d bytes", status, len(body))
				}
				// A sender that sends the block again gets no receipt for the broken copy, but one for the new copy.
				wantDurable(t, landAll(t, n, bigFrames("cache/-/x", inventory.LayoutFiles)))
				if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, x) {
					t.Error("not served whole after it came again")
				}
			})
		}
	}
}

func TestCatalogListsInBatches(t *testing.T) {
	n := newNode(t, "b")
	var records []catalog.Change
	for i := range 3*catalog.Batch + 7 {
		records = append(records, catalog.Change{Record: &catalog.Record{Opening: wire.Opening{ID: fmt.Sprintf("cache/-/%05d", i), Members: []wire.MemberSize{{Name: "x", Bytes: 1}}}, Segment: 1}})
	}
	if _, err := n.Vault.Catalog.Commit(records, nil, nil); err != nil {
		t.Fatal(err)
	}
	i := 0
	for h, err := range n.Vault.Held() {
		if err != nil || h.ID != inventory.BlockID(records[i].ID) {
			t.Fatalf("%d: got %s, %v", i, h.ID, err)
		}
		i++
	}
	if i != len(records) {
		t.Errorf("%d of %d listed", i, len(records))
	}
}

// The directories of a store are one name space, and the first that has a name wins: a block that landed in another
// would be hidden.
func TestLandingLooksIntoEveryDirectoryOfItsStore(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "c0", "c1"))
	for name, p := range map[string]string{"x": "c1/x", "y": "c0/y"} { // x would land in c0, y in c1
		write(t, filepath.Join(n.Dir, p), []byte("own"))
		o := wire.Opening{ID: "cache/-/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: name, Bytes: 3}}}
		if _, err := landInPlace(n.Stores[0], o, []int{0}, n.Vault.Catalog, new(diskio.Work)); !errors.Is(err, errOccupied) {
			t.Errorf("%s: got %v, want that the place is taken", name, err)
		}
	}
}

// The engine writes its file between the landing's look and its end.
func TestFileThatAppearsWhileLandingIsNotOverwritten(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 3}}}
	l, err := landInPlace(n.Stores[0], o, []int{0}, n.Vault.Catalog, new(diskio.Work))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.data(0, wire.Frame{Payload: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	done, err := l.finish(wire.Frame{}, catalog.Record{Opening: o})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(n.Dir, "cache/x"), []byte("the engine's own"))
	batch := []*landed{done}
	var held []vault.Held
	for _, in := range newCommitter(n.Vault, nil, func(h []vault.Held) { held = append(held, h...) }).durable(batch, new(diskio.Work)) {
		in.remove(new(diskio.Work))
	}
	if len(held) != 0 || !errors.Is(batch[0].fault, errOccupied) {
		t.Errorf("got %v, %v, want that the place is taken", held, batch[0].fault)
	}
	if got := n.Content(t, "cache/-/x"); string(got) != "the engine's own" {
		t.Errorf("got %q", got)
	}
	if left, _ := os.ReadDir(filepath.Join(n.Dir, "cache", inventory.StagingDir)); len(left) != 0 {
		t.Errorf("%d files stay in staging", len(left))
	}
}

// One block's fault does not fail the whole commit.
func TestCommitKeepsTheOthers(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	var batch []*landed
	for _, name := range []string{"bad", "deep/er/bad", "good"} {
		o := wire.Opening{ID: "cache/-/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: name, Bytes: 0}}}
		l, err := landInPlace(n.Stores[0], o, []int{0}, n.Vault.Catalog, new(diskio.Work))
		if err != nil {
			t.Fatal(err)
		}
		done, err := l.finish(wire.Frame{}, catalog.Record{Opening: o})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, done)
	}
	write(t, filepath.Join(n.Dir, "cache/bad"), []byte("in the way"))
	write(t, filepath.Join(n.Dir, "cache/deep"), []byte("a file where a directory should be"))
	var held []vault.Held
	newCommitter(n.Vault, nil, func(h []vault.Held) { held = append(held, h...) }).durable(batch, new(diskio.Work))
	if len(held) != 1 || held[0].ID != "cache/-/good" || batch[2].fault != nil || batch[0].fault == nil || batch[1].fault == nil {
		t.Errorf("got %v, faults %v, %v, %v", held, batch[0].fault, batch[1].fault, batch[2].fault)
	}
}

// A segment whose sync failed after its stream had ended takes no more blocks.
func TestSegmentThatFailedAfterItsStreamTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		failed := make(chan struct{})
		var syncs atomic.Int32
		n.Vault.Flush = func(f *os.File) error {
			if syncs.Add(1) > 1 {
				return unix.Fdatasync(int(f.Fd()))
			}
			<-failed
			return unix.EIO
		}
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		s.Conn.Close()
		time.Sleep(2 * gather)
		close(failed)
		synctest.Wait()
		s = n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		s.WantReceipt()
		s.Conn.Close()
		stop()
		if got := segmentsIn(t, n.Vault.Dir); len(got) != 1 || n.Vault.Close() != nil {
			t.Errorf("segments %v, want the one that has the block", got)
		}
	})
}

func TestLeftoverStagingIsSweptAtStart(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "c0", "c1"))
	left := filepath.Join(n.Dir, "c1", inventory.StagingDir, "half")
	write(t, left, []byte("half a block"))
	n.receive(t)
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there")
	}
}

// A name in the staging directory would be swept away at the next start.
func TestNothingLandsInTheStagingDirectory(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	id := "cache/-/" + inventory.StagingDir + "/x"
	wantDurable(t, landAll(t, n, blockFrames(1, id, contentOf("x", 100))))
	n.receive(t)
	if got := n.Content(t, id); !bytes.Equal(got, contentOf("x", 100)) {
		t.Error("it was swept away")
	}
}

// If an engine replaced or removed a landed file, this node no longer vouches for it, and does not answer "I have it
// already".
func TestPlacedFileThatItsEngineReplaced(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 100)), blockFrames(2, "cache/-/y", contentOf("y", 100))))
	_, _, landed := n.Get(t, "cache/-/x", "")
	if err := os.WriteFile(filepath.Join(n.Dir, "cache/x"), []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, body, own := n.Get(t, "cache/-/x", "")
	if status != 200 || string(body) != "newer" || own.Get("ETag") == landed.Get("ETag") {
		t.Errorf("status %d, %q, ETag %s as before", status, body, own.Get("ETag"))
	}
	if err := os.Remove(filepath.Join(n.Dir, "cache/y")); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := n.Get(t, "cache/-/y", ""); status != 404 {
		t.Errorf("removed: status %d, want 404", status)
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 100))))
	if got := n.Content(t, "cache/-/y"); !bytes.Equal(got, contentOf("y", 100)) {
		t.Error("a receipt for what is not here")
	}
}

// A file that an engine removed long ago is no reason to refuse another node's block of that name.
func TestRemovedBlockStandsAgainstNothing(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "elsewhere", Members: []wire.MemberSize{{Name: "x", Bytes: 100}}}
	wantDurable(t, landAll(t, n, openingFrames(1, o, contentOf("first", 100))))
	if err := os.Remove(filepath.Join(n.Dir, "cache/x")); err != nil {
		t.Fatal(err)
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("second", 100))))
	if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("second", 100)) {
		t.Error("it does not read as what came last")
	}
}

func TestSyncPassesByWhatIsGone(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	if err := syncAll(n.Stores[0], []place{{0, "an/application/that/ended"}, {0, "."}}, new(diskio.Work), func(int, time.Duration, error) {}); err != nil {
		t.Error(err)
	}
}

func TestReadingMethods(t *testing.T) {
	n := newNode(t, "b")
	if status, _, h := ask(t, n.Reader(), http.MethodPut, "/blocks/", nil); status != 405 || h.Get("Allow") != "POST" {
		t.Errorf("PUT where blocks are asked for: status %d, Allow %q", status, h.Get("Allow"))
	}
	if status, _, h := ask(t, n.Reader(), http.MethodPut, "/blocks/cache/-/x", nil); status != 405 || h.Get("Allow") != "GET, HEAD" {
		t.Errorf("PUT: status %d", status)
	}
	if status, _, _ := ask(t, n.Reader(), http.MethodGet, "/blocks/cache/-/%2e%2e/x", nil); status != 400 {
		t.Errorf("..: status %d, want 400", status)
	}
}
