package migration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func TestMapOutputsAreUnpackedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in a bubble no time passes that the node could take for a pause
		a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0", "d1"))
		manager := filepath.Join(a.Dir, "d0/application_1_1/blockmgr-x")
		var all []map[string][]byte
		for m := range 30 {
			all = append(all, writeMapOutput(t, []string{manager}, 1, m, 100*m, 50))
		}
		b.packs = true
		tr := newTrip(t, a, b)
		tr.cfg.Connections = 1 // of two, one may cut the other's farewell short, and a pipe has no other: that takes seconds
		tr.run(within(t, 20*time.Second))
		if got := carriedIn(t, b.Stores[0]); got != nil {
			t.Errorf("before they are unpacked the store has %s", got)
		}
		wantWaiting(t, b, 30, 0)
		b.unpack()
		wantWaiting(t, b, 0, 0)
		mine := []string{filepath.Join(b.Dir, "d0/application_1_1/blockmgr-lifeboat"), filepath.Join(b.Dir, "d1/application_1_1/blockmgr-lifeboat")}
		for _, files := range all {
			for name, content := range files {
				if got, err := os.ReadFile(spot(mine, name)); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
			}
		}
		if got := len(carriedIn(t, b.Stores[0])); got != 30 {
			t.Errorf("%d map outputs are seen, want 30", got)
		}
	})
}

// The disk on which an older version lies takes no more. The newer one is refused, so that its sender goes elsewhere: beside the
// older one in its place it would be passed over by the next drain.
func TestNewerVersionWhereTheOlderHasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, want := packed(t, 3, 700)
		n.unpack()
		const id = "cache/-/d1/f-0001"
		newer := blockFrames(1, id, contentOf("newer", 900))
		n.Room = func(p string) int64 {
			if strings.HasSuffix(p, "cache") {
				return 10
			}
			return 1 << 40
		}
		n.receive(t)
		s := n.stream(t, t.Context())
		s.Send(newer)
		if v := s.Verdict(); v.Code == wire.VerdictDurable || !strings.Contains(v.Reason, "full") {
			t.Errorf("got %d %q, want it refused because the disk is full", v.Code, v.Reason)
		}
		s.Conn.Close()
		<-s.Over
		n.WantFiles(t, want)

		n.Room = plenty
		n.receive(t)
		s = n.stream(t, t.Context())
		s.Send(newer)
		s.WantReceipt()
		s.Conn.Close()
		<-s.Over
		want[id] = contentOf("newer", 900)
		n.unpack()
		synctest.Wait() // a commit tidies up once it has answered
		n.WantFiles(t, want)
		c := newNode(t, "c")
		_, entries := n.drain(t, within(t, time.Minute), c)
		wantThere(t, want, entries, c)
	})
}

// One disk of a Spark store takes no files. Those of the others are made all the same, and its own when it takes some again.
func TestOneDiskOfAStoreTakesNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := onDisks(t, "b", []inventory.StoreConfig{with(sparkStore, "d0", "d1")}, "v")
		b.packs = true
		var log nodetest.Notes
		b.tune = func(cfg *receiver.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		full := b.Stores[0].Paths[0]
		a := newNode(t, "a", with(sparkStore, "d0"))
		const outputs = 40
		files, bound := 0, int64(0) // to the disk that is full
		for i := range outputs {
			there := false
			for name := range writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/application_1_1/blockmgr-x")}, 1, i, 100, 200) {
				root, _ := b.Stores[0].Shape.Place(b.Stores[0], inventory.BlockID(fmt.Sprintf("spark/application_1_1/shuffle_1_%d_0", i)), name)
				files, there = files+1, there || root == 0
			}
			if there {
				bound++
			}
		}
		a.drain(t, within(t, time.Minute), b)
		wantWaiting(t, b, outputs, 0)
		f.Set(f.Full, full, true)
		_, stop := b.receiving(t)
		defer stop()
		time.Sleep(6 * time.Second)
		made := func(dir string) int {
			found, err := filepath.Glob(filepath.Join(b.Dir, dir, "*", "*", "*", "shuffle_1_*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		if waiting := b.receiver.Unpacking().Waiting.Blocks; made("d0") != 0 || made("d1") == 0 || waiting != bound || bound == outputs {
			t.Errorf("with a full disk: %d files on it, %d on the other, and %d blocks wait; want %d of %d to wait", made("d0"), made("d1"), waiting, bound, outputs)
		}
		time.Sleep(3 * time.Minute)
		if got := log.Count("no files can be made of some blocks"); got != 1 {
			t.Errorf("said %d times that no files can be made", got)
		}
		f.Set(f.Full, full, false)
		time.Sleep(time.Second)
		wantWaiting(t, b, 0, 0)
		if got := made("d0") + made("d1"); got != files {
			t.Errorf("in the end there are %d files, want %d", got, files)
		}
		f.WantNothingReserved(t)
	})
}

// A node that is to leave makes no more files: what waits is carried from its segments.
func TestNodeThatLeavesStopsUnpacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, want := packed(t, 50, 500)
		noticed := n.underNotice()
		noticed.Store(true)
		_, stop := n.receiving(t)
		time.Sleep(time.Minute)
		n.WantPacked(t, want)
		wantWaiting(t, n, 50, 0)
		c := newNode(t, "c")
		_, entries := n.drain(t, within(t, time.Minute), c)
		wantThere(t, want, entries, c)
		noticed.Store(false) // it was withdrawn
		time.Sleep(2 * diskio.LookAfter)
		n.WantFiles(t, want)
		stop()
	})
}

// Drains begin at any moment of the unpacking. Each block is carried, and once.
func TestDrainMeetsTheUnpacking(t *testing.T) {
	for round := range 12 {
		n, want := packed(t, 300, 400)
		n.packs = false
		noticed := n.underNotice()
		n.receive(t)
		var unpacking sync.WaitGroup
		unpacking.Go(n.unpack)
		for range round * 30 { // some of it happens first
			n.Has("cache/-/d0/f-0000")
		}
		noticed.Store(true)
		c := newNode(t, "c")
		tr := newTrip(t, n, c)
		tr.cfg.Settle = n.receiver.Settle
		_, entries := tr.run(within(t, 30*time.Second))
		unpacking.Wait()
		wantThere(t, want, entries, c)
		if got := len(c.LandedBlocks()); got != 300 {
			t.Errorf("round %d: %d blocks landed, want each of 300 once", round, got)
		}
	}
}

// A disk is evacuated while the node stays, and goes on unpacking: what was planned in a segment is carried as the file that
// it has become.
func TestPlannedBlockThatBecameAFile(t *testing.T) {
	n, want := packed(t, 3, 500)
	const id = "cache/-/d1/f-0001"
	planned, err := n.Vault.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDrain(newTrip(t, n).cfg)
	n.unpack()
	f, err := d.source.openMember(planned, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want[id]) {
		t.Errorf("carries %d bytes, %v", len(got), err)
	}
	if now, err := d.source.find(planned); err != nil || now.Bytes() != planned.Bytes() || manifest.VersionOf(now) != manifest.VersionOf(planned) {
		t.Errorf("found %+v, %v, want it as it was planned", now, err)
	}
}

// An engine finds a block that waits to become a file nowhere: whoever would send it there can tell, also through another node.
func TestReadersHearWhetherABlockIsAFile(t *testing.T) {
	n, want := packed(t, 1, 100)
	a := newNode(t, "a").Reader()
	at := func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{Holders: holders("b")}, nil
	}
	a.Fetch = &reading.Fetcher{Dial: (&fleet{nodes: map[string]http.Handler{"b": n.Reader()}}).dial, Locate: at}
	defer a.Fetch.Close()
	for _, landed := range []string{"vault", "place"} {
		for id := range want {
			for _, rd := range []*reading.Reader{n.Reader(), a} {
				w := httptest.NewRecorder()
				rd.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/blocks/"+id, nil))
				if got := w.Header().Get("Lifeboat-Landed"); w.Code != http.StatusOK || got != landed {
					t.Errorf("HEAD %s at %s: %d, landed in the %q, want in the %s", id, rd.Node, w.Code, got, landed)
				}
			}
		}
		n.unpack()
	}
}
