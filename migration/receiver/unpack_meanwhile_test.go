package receiver

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// hungDisks do not come back from a sync of a directory until they thaw.
type hungDisks struct {
	*nodetest.Disks
	dir  string
	thaw chan struct{}
}

func (h *hungDisks) Flushed(p string, bytes int64, took time.Duration) {
	if p == h.dir {
		<-h.thaw
	}
	h.Disks.Flushed(p, bytes, took)
}

// After a start nobody knows yet how much room the disks have: that is no trouble to log. Once the disks were looked at
// the unpacker goes on.
func TestUnpackerWaitsForTheFirstLookAtTheDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		store := n.Stores[0].Paths[0]
		f.Set(f.Full, store, true)
		var looked atomic.Bool
		var log nodetest.Notes
		n.tune = func(cfg *Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			room := cfg.Room
			cfg.Room = func(p string) (int64, error) {
				if !looked.Load() {
					return 0, errors.New("not looked at")
				}
				return room(p)
			}
		}
		_, stop := n.receiving(t)
		defer stop()
		time.Sleep(unpackPatience)
		n.WantPacked(t, want)
		looked.Store(true)
		f.Set(f.Full, store, false)
		time.Sleep(time.Second)
		n.WantFiles(t, want)
		if got := log.Count("no files can be made"); got != 0 {
			t.Errorf("said %d times that no files can be made", got)
		}
	})
}

// unseenVault are disks of which that under the vault has not been looked at yet.
type unseenVault struct {
	*nodetest.Disks
	looked *atomic.Bool
}

func (d *unseenVault) Keeps(string) bool { return d.looked.Load() }

// Each directory is looked at by itself. The disk of a store may be known a moment before that of the records, without which
// no file is made: that is no trouble to log either.
func TestUnpackerWaitsForTheFirstLookAtTheVaultsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		var looked atomic.Bool
		n.Disks = &unseenVault{f, &looked}
		var log nodetest.Notes
		n.tune = func(cfg *Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			room := cfg.Room
			cfg.Room = func(p string) (int64, error) {
				if p == cfg.Vault.Dir && !looked.Load() {
					return 0, errors.New("not looked at")
				}
				return room(p)
			}
		}
		_, stop := n.receiving(t)
		defer stop()
		time.Sleep(unpackPatience)
		n.WantPacked(t, want)
		looked.Store(true)
		f.Set(f.Full, "elsewhere", false)
		time.Sleep(time.Second)
		n.WantFiles(t, want)
		if got := log.Count("no files can be made"); got != 0 {
			t.Errorf("said %d times that no files can be made", got)
		}
	})
}

// seenAmid are disks of which that under the vault is looked at right after a block found that it is not known.
type seenAmid struct {
	*nodetest.Disks
	look func()
}

func (d *seenAmid) Keeps(p string) bool { defer d.look(); return d.Disks.Keeps(p) }

// The first look may end while blocks are being unpacked: those that found no room before it are no trouble to log.
func TestFirstLookAtTheDisksComesAmidAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		vault := n.Vault.Dir
		f.Set(f.Bad, vault, true)
		var looked atomic.Bool
		n.Disks = &seenAmid{f, func() {
			if !looked.Swap(true) {
				f.Set(f.Bad, vault, false)
			}
		}}
		var log nodetest.Notes
		n.tune = func(cfg *Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			room := cfg.Room
			cfg.Room = func(p string) (int64, error) {
				if p == vault && !looked.Load() {
					return 0, errors.New("not looked at")
				}
				return room(p)
			}
		}
		_, stop := n.receiving(t)
		defer stop()
		time.Sleep(unpackPatience + time.Second)
		n.WantFiles(t, want)
		if got := log.Count("no files can be made"); got != 0 {
			t.Errorf("said %d times that no files can be made", got)
		}
	})
}

// When a machine that was frozen goes on, what was under way on its disks seems to hang, until the next look finds that it came back. Files
// are made then, and not a minute later, and nothing is said of a full disk.
func TestUnpackerGoesOnOnceNothingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		var log nodetest.Notes
		n.tune = func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		n.receive(t)
		n.receiver.unpackers.lately.Note(time.Now()) // so files are made in a lull from now
		_, stop := nodetest.Run(n.receiver)
		defer stop()
		time.Sleep(lull / 2)
		n.receiver.volumes.avoid([]string{n.Vault.Dir})
		time.Sleep(lull)
		n.WantPacked(t, want)
		time.Sleep(2 * diskio.LookAfter)
		n.WantFiles(t, want)
		if got := log.Count("no files can be made"); got != 0 {
			t.Errorf("said %d times that no files can be made", got)
		}
	})
}

// freedDisks are full until a block has found no room.
type freedDisks struct {
	*nodetest.Disks
	free func()
}

func (d *freedDisks) Take(need int64, among []string) (string, func(int64), bool) {
	defer d.free()
	return d.Disks.Take(need, among)
}

// A disk that takes blocks again while the unpacker is at work is tried again at once: the change is not missed.
func TestDiskThatRecoversWhileBlocksAreUnpacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		store := n.Stores[0].Paths[0]
		f.Set(f.Full, store, true)
		n.Disks = &freedDisks{f, sync.OnceFunc(func() { f.Set(f.Full, store, false) })}
		_, stop := n.receiving(t)
		defer stop()
		time.Sleep(unpackPatience + time.Second)
		n.WantFiles(t, want)
	})
}

func TestStoreOnADiskThatTakesNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		store := n.Stores[0].Paths[0]
		f.Set(f.Full, store, true)
		var log nodetest.Notes
		n.tune = func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		_, stop := n.receiving(t)
		defer stop()
		time.Sleep(10*unpackAgain + unpackAgain/2)
		n.WantPacked(t, want)
		wantWaiting(t, n, 20, 0)
		if got := log.Count("no files can be made"); got != 1 {
			t.Errorf("said %d times that no files can be made", got)
		}
		f.Set(f.Full, store, false)
		time.Sleep(time.Second)
		n.WantFiles(t, want)
		wantWaiting(t, n, 0, 0)
		f.WantNothingReserved(t)
	})
}

// A disk that hangs under the files holds up no reader, no stream and no drain.
func TestStoreOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "v")
		want := n.pack(t, 20, 500)
		hung := &hungDisks{f, n.Stores[0].Paths[0], make(chan struct{})}
		n.Disks = hung
		noticed := n.underNotice()
		ctx, stop := n.receiving(t)
		time.Sleep(time.Second)
		n.WantPacked(t, want)
		s := n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/more", []byte("more")))
		s.WantReceipt()
		s.Conn.Close()
		f.Set(f.Bad, hung.dir, true)
		noticed.Store(true)
		began := time.Now()
		n.receiver.Settle(within(t, time.Minute))
		if took := time.Since(began); took > diskio.Suspect+2*diskio.LookAfter {
			t.Errorf("a drain waited %v for it", took)
		}
		n.WantPacked(t, want)
		if took := stop(); took > lastStand+diskio.Suspect {
			t.Errorf("stopped after %v", took)
		}
		close(hung.thaw)
		synctest.Wait()
		noticed.Store(false)
		f.Set(f.Bad, hung.dir, false)
		want["cache/-/more"] = []byte("more")
		n.receive(t)
		n.unpack()
		n.WantFiles(t, want)
	})
}

// The disk may not have room for every landed block twice: the space of blocks that became files is given back on the way,
// and not only at the end.
func TestSpaceIsGivenBackWhileMoreIsUnpacked(t *testing.T) {
	const blocks = 160
	n, want := packed(t, blocks, 1<<20)
	var least int64 = blocks << 20
	n.tune = func(cfg *Config) {
		cfg.Admit = func(bool) Admission { // called before each block
			least = min(least, spaceOf(t, n.Vault.Dir))
			return Admission{}
		}
	}
	n.receive(t)
	n.unpack()
	n.WantFiles(t, want)
	if most := int64(blocks<<20 - mostTwice); least > most {
		t.Errorf("segments took at least %d MiB while files were made, want %d MiB at most towards the end", least>>20, most>>20)
	}
}

// A drain looks at the store once the files under way have their names, and no more are made.
func TestDrainWaitsForTheFilesOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := packed(t, 5, 500)
		noticed := n.underNotice()
		n.receive(t)
		u := n.receiver.unpackers.all[0]
		leave, err := u.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		noticed.Store(true)
		time.AfterFunc(time.Second, leave)
		began := time.Now()
		n.receiver.Settle(t.Context())
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %v for a group of a second", took)
		}
		if _, err := u.enter(t.Context()); !errors.Is(err, errLeaving) {
			t.Errorf("another group begins: %v", err)
		}
	})
}

// A reader gets the right bytes, under one ETag, while blocks become files.
func TestReadsWhileBlocksBecomeFiles(t *testing.T) {
	n, want := packed(t, 400, 600)
	h := n.Reader()
	const id = "cache/-/d1/f-0001"
	etag := etagOf(t, h, id)
	before, err := n.Vault.Catalog.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			for over := false; !over; {
				select {
				case <-ended:
					over = true
				default:
				}
				for id, content := range want {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
					if w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), content) || strings.HasPrefix(w.Header().Get("ETag"), `"file-`) {
						t.Errorf("%s: %d, %d bytes, ETag %s", id, w.Code, w.Body.Len(), w.Header().Get("ETag"))
						return
					}
				}
			}
		})
	}
	n.unpack()
	close(ended)
	reading.Wait()
	n.WantFiles(t, want)
	if got := etagOf(t, h, id); got != etag {
		t.Errorf("the ETag was %s and is %s", etag, got)
	}
	late, err := n.Vault.OpenLanded(n.Stores[0], before, 0, 0) // for a reader that looked the block up before
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if got, err := io.ReadAll(late); err != nil || !bytes.Equal(got, want[id]) {
		t.Errorf("who looked it up before reads %d bytes, %v", len(got), err)
	}
}

// If a directory cannot be synced, its group is tried again each minute: the files staged for it must not fill the disk.
func TestGroupThatIsHeldUpLeavesNothingStaged(t *testing.T) {
	n, _ := packed(t, 2, 1000)
	n.receive(t)
	u, c := n.receiver.unpackers.all[0], n.Vault.Catalog
	recs, _, err := u.packed(nil)
	if err != nil || len(recs) != 2 {
		t.Fatalf("got %d blocks, %v", len(recs), err)
	}
	before := recs[1]
	before.Placed = []catalog.Placed{{Path: "../out of reach/f"}}
	if _, err := c.Turn(recs[1:], []catalog.Record{before}); err != nil {
		t.Fatal(err)
	}
	from := vault.NewReplay(n.Vault)
	defer from.Close()
	m, err := u.stage(from, recs[0])
	if err != nil {
		t.Fatal(err)
	}
	into := before
	into.Segment, into.Offset, into.OpenLen, into.Length = 0, 0, 0, 0
	if _, err := u.put([]*move{m, {was: before, into: &landed{Record: into, lying: &lying{store: u.store}}, there: true}}); err == nil {
		t.Error("a directory out of reach was synced")
	}
	if left, err := entriesIn(u.store.Roots[0], inventory.StagingDir); err != nil || len(left) > 0 {
		t.Errorf("%d files stay staged, %v", len(left), err)
	}
}

// A removal waits for the files that are being made, and removes them, too.
func TestRemovalWaitsForTheFilesOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := packed(t, 20, 700)
		u := n.receiver.unpackers.all[0]
		leave, err := u.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		moves := staged(t, n, u)
		time.AfterFunc(diskio.Suspect/2, func() {
			if _, err := u.put(moves); err != nil {
				t.Error(err)
			}
			letGo(n, moves)
			leave()
		})
		if got := n.remove(t, func(vault.Held) bool { return true }); got.Blocks != 20 {
			t.Errorf("removed %d blocks, want 20", got.Blocks)
		}
		n.WantFiles(t, map[string][]byte{})
		if got := carriedIn(t, n.Stores[0]); got != nil {
			t.Errorf("left in the store: %s", got)
		}
	})
}
