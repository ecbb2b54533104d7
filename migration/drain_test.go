package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// cached makes a node with that many cached files of that size, and returns the contents by id.
func cached(t testing.TB, count, size int) (*node, map[string][]byte) {
	t.Helper()
	n := newNode(t, "a", with(filesStore, "cache"))
	want := map[string][]byte{}
	for i := range count {
		name := fmt.Sprintf("f-%04d", i)
		want["cache/-/"+name] = contentOf(name, size)
		write(t, filepath.Join(n.Dir, "cache", name), want["cache/-/"+name])
	}
	return n, want
}

// wantThere checks that every block has moved once, and reads back at the peer that the account names.
func wantThere(t testing.TB, want map[string][]byte, entries []manifest.Entry, peers ...*node) {
	t.Helper()
	moved := outcome(t, entries, manifest.Moved)
	for id, content := range want {
		e, ok := moved[id]
		if !ok {
			t.Errorf("%s did not move", id)
			continue
		}
		for _, p := range peers {
			if p.Name == e.Peer && !bytes.Equal(p.Content(t, id), content) {
				t.Errorf("%s at %s is not what was sent", id, p.Name)
			}
		}
	}
}

func wantLost(t testing.TB, want map[string][]byte, entries []manifest.Entry, reason string) {
	t.Helper()
	lost := outcome(t, entries, manifest.Lost)
	for id := range want {
		if e, ok := lost[id]; !ok || !strings.Contains(e.Reason, reason) {
			t.Errorf("%s: got %+v, want it lost because of %q", id, e, reason)
		}
	}
}

// An engine removes a map output's data before its index. Without the data there is nothing to send, and the account says so in those
// words. Data that is back a moment later was only being committed anew.
func TestMapOutputWhoseDataIsDeleted(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))
			manager := filepath.Join(a.Dir, "d0/blockmgr-x")
			files := writeMapOutput(t, []string{manager}, 1, 2, 1000)
			_, sub := inventory.SparkPlace("shuffle_1_2_0.data", 1)
			data := filepath.Join(manager, sub, "shuffle_1_2_0.data")
			tr := newTrip(t, a, b)
			tr.cfg.Connections, tr.cfg.Peers = 1, after(3*time.Second, tr.cfg.Peers)
			time.AfterFunc(time.Second, func() {
				if err := os.Remove(data); err != nil {
					t.Error(err)
				}
			})
			tr.wrap = func(c net.Conn) net.Conn {
				if back {
					time.AfterFunc(backOff(1)/2, func() { write(t, data, files["shuffle_1_2_0.data"]) })
				}
				return c
			}
			_, entries := tr.run(within(t, 20*time.Second))
			if back {
				if _, ok := outcome(t, entries, manifest.Moved)["spark/blockmgr-x/shuffle_1_2_0"]; !ok {
					t.Errorf("got %v, want it moved", entries)
				}
				return
			}
			want := "its data file was deleted while the node was draining: only the index is left"
			if e := outcome(t, entries, manifest.Skipped)["spark/blockmgr-x/shuffle_1_2_0"]; e.Reason != want || len(outcome(t, entries, manifest.Lost)) > 0 {
				t.Errorf("got %v, want it skipped, for %s", entries, want)
			}
		})
	}
}

func TestDrainWithoutPeersLosesEveryBlockByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 50, 100)
		began := time.Now()
		sum, entries := a.drain(t, within(t, 20*time.Second))
		if took := time.Since(began); took < 20*time.Second || took > 23*time.Second {
			t.Errorf("took %v, want until the deadline in 20 s: a peer may come", took)
		}
		wantLost(t, want, entries, "no peer to send to")
		if sum.Lost.Blocks != 50 || sum.Lost.Bytes != 5000 || sum.Moved.Blocks != 0 {
			t.Errorf("got %+v", sum)
		}
	})
}

func TestDrainWithNothingToCarryEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := newNode(t, "a", with(filesStore, "cache"))
		if sum, _ := a.drain(t, within(t, time.Minute)); sum.Total().Blocks != 0 || time.Since(began) > 5*time.Second {
			t.Errorf("got %+v after %v", sum, time.Since(began))
		}
	})
}

// The only peer goes once it has everything. No lane then learns from the plan that nothing is left, but the drain does not wait for
// the peer until its deadline.
func TestDrainEndsWhenItsPeerGoesAfterTheLastReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		write(t, filepath.Join(a.Dir, "cache/first"), contentOf("first", 1000))
		tr := newTrip(t, a, b)
		tr.cfg.Peers = after(2*time.Second, tr.cfg.Peers)
		time.AfterFunc(time.Second, func() { write(t, filepath.Join(a.Dir, "cache/second"), contentOf("second", 1000)) })
		var mu sync.Mutex
		var conns []net.Conn
		tr.wrap = func(c net.Conn) net.Conn {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return c
		}
		go func() {
			for len(b.LandedBlocks()) < 2 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond) // its receipts have come, but the look that finds nothing more is not over
			tr.mu.Lock()
			tr.fakes = map[string]func(net.Conn){"b": func(c net.Conn) { c.Close() }}
			tr.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range conns {
				c.Close()
			}
		}()
		began := time.Now()
		sum, _ := tr.run(within(t, time.Hour))
		if took := time.Since(began); sum.Moved.Blocks != 2 || took > 10*time.Second {
			t.Errorf("%d blocks were moved, and it ended after %v, want 2 within seconds", sum.Moved.Blocks, took)
		}
	})
}

func TestDrainPassesByAPeerWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 50, 1000)
		b, c := newNode(t, "b"), newNode(t, "c")
		b.Room = roomFor(999)
		_, entries := a.drain(t, within(t, time.Minute), b, c)
		wantThere(t, want, entries, c)
		if held := b.LandedBlocks(); len(held) != 0 {
			t.Errorf("%d blocks landed where there was no room", len(held))
		}
	})
}

func TestDrainIntoFullPeersNamesThemFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b, c := newNode(t, "b"), newNode(t, "c")
		b.Room, c.Room = roomFor(10), roomFor(0)
		_, entries := a.drain(t, within(t, 20*time.Second), b, c)
		wantLost(t, want, entries, "room")
	})
}

// The room that a peer grants is that of its roomiest disk. The disk on which a block belongs may be full.
func TestBlockWhoseOwnPlaceIsFullGoesToTheVault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))
		files := writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, 2, 1000)
		b.Room = func(p string) int64 {
			if strings.HasSuffix(p, "d0") {
				return 10
			}
			return 1 << 30
		}
		began := time.Now()
		_, entries := a.drain(t, within(t, time.Minute), b)
		if _, ok := outcome(t, entries, manifest.Moved)["spark/blockmgr-x/shuffle_1_2_0"]; !ok || time.Since(began) > 5*time.Second {
			t.Fatalf("got %+v after %v, want it moved", entries, time.Since(began))
		}
		if got := b.Content(t, "spark/blockmgr-x/shuffle_1_2_0.data"); !bytes.Equal(got, files["shuffle_1_2_0.data"]) {
			t.Error("data differs")
		}
	})
}

func TestDrainSkipsWhatIsDeletedWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 10, 100)
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.Peers = after(3*time.Second, tr.cfg.Peers)
		time.AfterFunc(time.Second, func() { os.Remove(filepath.Join(a.Dir, "cache", "f-0003")) })
		_, entries := tr.run(within(t, time.Minute))
		delete(want, "cache/-/f-0003")
		wantThere(t, want, entries, b)
		if e := outcome(t, entries, manifest.Skipped)["cache/-/f-0003"]; !strings.Contains(e.Reason, "deleted") {
			t.Errorf("got %+v, want it skipped as deleted", e)
		}
	})
}

// after shows peers only when that much time has passed.
func after(d time.Duration, peers func() []Peer) func() []Peer {
	from := time.Now().Add(d)
	return func() []Peer {
		if time.Now().Before(from) {
			return nil
		}
		return peers()
	}
}

// Spark's shuffle service removes an executor's checksum files and keeps data and index: the block is not deleted.
func TestDrainCarriesAMapOutputThatLostItsChecksums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b")
		files := writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, 2, 1000)
		tr := newTrip(t, a, b)
		tr.cfg.Peers = after(3*time.Second, tr.cfg.Peers)
		time.AfterFunc(time.Second, func() {
			_, sub := inventory.SparkPlace("shuffle_1_2_0.checksum.ADLER32", 1)
			if err := os.Remove(filepath.Join(a.Dir, "d0/blockmgr-x", sub, "shuffle_1_2_0.checksum.ADLER32")); err != nil {
				t.Error(err)
			}
		})
		_, entries := tr.run(within(t, time.Minute))
		if _, ok := outcome(t, entries, manifest.Moved)["spark/blockmgr-x/shuffle_1_2_0"]; !ok {
			t.Fatalf("got %+v, want it moved", entries)
		}
		if got := b.Content(t, "spark/blockmgr-x/shuffle_1_2_0.data"); !bytes.Equal(got, files["shuffle_1_2_0.data"]) {
			t.Error("data differs")
		}
	})
}

func TestDrainSendsAChangedFileWholeInItsNewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		p := filepath.Join(a.Dir, "cache", "x")
		write(t, p, contentOf("old", 8*wire.ChunkBytes))
		var once atomic.Bool
		b.mangle = func(conn net.Conn) net.Conn {
			return &hooked{Conn: conn, afterRead: func(total int64) {
				if total > 2*wire.ChunkBytes && once.CompareAndSwap(false, true) {
					if err := os.WriteFile(p, contentOf("new", 8*wire.ChunkBytes), 0o644); err != nil {
						t.Error(err)
					}
				}
			}}
		}
		_, entries := a.drain(t, within(t, time.Minute), b)
		if !once.Load() {
			t.Fatal("the file did not change while it was being sent")
		}
		wantThere(t, map[string][]byte{"cache/-/x": contentOf("new", 8*wire.ChunkBytes)}, entries, b)
		if held := b.LandedBlocks(); len(held) != 1 {
			t.Errorf("%d copies landed, want the new one alone", len(held))
		}
	})
}

func TestDrainGivesUpAFileThatKeepsChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 5, 100)
		b := newNode(t, "b")
		p := filepath.Join(a.Dir, "cache", "log")
		write(t, p, contentOf("log", 4*wire.ChunkBytes))
		var size atomic.Int64
		size.Store(4 * wire.ChunkBytes)
		b.mangle = func(conn net.Conn) net.Conn {
			return &hooked{Conn: conn, afterRead: func(total int64) {
				if err := os.Truncate(p, size.Add(1)); err != nil {
					t.Error(err)
				}
			}}
		}
		began, tr := time.Now(), newTrip(t, a, b)
		_, entries := tr.run(within(t, 5*time.Minute))
		wantThere(t, want, entries, b)
		for ago, want := range map[time.Duration]bool{0: false, time.Minute: true} {
			at := time.Now().Add(-ago)
			if err := os.Chtimes(p, at, at); err != nil {
				t.Fatal(err)
			}
			if some, err := AnyLeft(t.Context(), tr.cfg, inTime); some != want || err != nil {
				t.Errorf("it changed last %v ago: got %t, %v, want it left: %t", ago, some, err, want)
			}
		}
		if e := outcome(t, entries, manifest.Lost)["cache/-/log"]; !strings.Contains(e.Reason, "changed while") {
			t.Errorf("got %+v, want it lost because it changed", e)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("took %v: a restless file held the drain up", took)
		}
	})
}

func TestDrainTwiceLeavesOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 30, 5000)
		b := newNode(t, "b")
		a.drain(t, within(t, time.Minute), b)
		before := b.SegmentBytes(t)
		tr := newTrip(t, a, b)
		tr.cfg.Dir = filepath.Join(a.Dir, "another-incident")
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		if held, after := b.LandedBlocks(), b.SegmentBytes(t); len(held) != 30 || after != before {
			t.Errorf("%d blocks landed and segments grew from %d to %d bytes, want 30 and no growth", len(held), before, after)
		}
	})
}

// Two peers may hold two versions of a block. The receipt for the old version must not stand for the new one.
func TestDrainReplacesAnOlderVersionAtThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 1, 5000)
		b := newNode(t, "b")
		a.drain(t, within(t, time.Minute), b)
		write(t, filepath.Join(a.Dir, "cache", "f-0000"), contentOf("newer", 5000))
		tr := newTrip(t, a, b)
		tr.cfg.Dir = filepath.Join(a.Dir, "another-incident")
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, map[string][]byte{"cache/-/f-0000": contentOf("newer", 5000)}, entries, b)
	})
}

func TestDrainUsesAPeerThatAppearsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 10, 100)
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.Peers = after(7*time.Second, tr.cfg.Peers)
		began := time.Now()
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		if took := time.Since(began); took > 10*time.Second { // the last look may wait two seconds for the stores to be quiet
			t.Errorf("took %v, want soon after the peer came", took)
		}
	})
}

func TestDrainCarriesWhatIsWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 100_000)
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond = 500_000
		for i := range 5 {
			time.AfterFunc(time.Duration(i)*500*time.Millisecond, func() {
				aside := filepath.Join(a.Dir, fmt.Sprint("aside-", i)) // engines commit by renaming
				write(t, aside, contentOf("late", 10+i))
				if err := os.Rename(aside, filepath.Join(a.Dir, "cache", fmt.Sprint("late-", i))); err != nil {
					t.Error(err)
				}
			})
			want[fmt.Sprint("cache/-/late-", i)] = contentOf("late", 10+i)
		}
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
	})
}

// Lanes read into buffers. Measured there, a capped rate would be zero in one second and twice the cap in the next.
func TestRateUnderACapIsTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 200_000
		a, _ := cached(t, 60, 100_000)
		tr := newTrip(t, a, newNode(t, "b"))
		tr.cfg.MaxBytesPerSecond = most
		rates := make(chan int64, 15)
		time.AfterFunc(2*time.Second, func() {
			for range cap(rates) {
				time.Sleep(time.Second)
				rates <- tr.drain.Progress().BytesPerSecond
			}
			close(rates)
		})
		tr.run(within(t, 20*time.Second))
		<-rates // it is measured from the first look on
		for rate := range rates {
			if rate < most*3/4 || rate > most*5/4 {
				t.Errorf("the rate is %d, want about %d", rate, most)
			}
		}
	})
}

func TestDrainSendsNothingAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 100, 100_000)
		b := newNode(t, "b")
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond = 1_000_000
		deadline := time.Now().Add(5 * time.Second)
		var late atomic.Int64
		b.mangle = func(conn net.Conn) net.Conn {
			var before int64
			return &hooked{Conn: conn, afterRead: func(total int64) {
				if time.Now().After(deadline) {
					late.Add(total - before)
				}
				before = total
			}}
		}
		sum, entries := tr.run(within(t, 5*time.Second))
		if late.Load() != 0 {
			t.Errorf("%d bytes came after the deadline", late.Load())
		}
		if over := time.Since(deadline); over > receiptGrace+time.Second {
			t.Errorf("the drain ended %v after its deadline", over)
		}
		if sum.Moved.Blocks == 0 || sum.Lost.Blocks == 0 || sum.Total().Blocks != 100 {
			t.Fatalf("got %+v, want part moved and the rest lost", sum)
		}
		for id := range outcome(t, entries, manifest.Moved) {
			delete(want, id)
		}
		wantLost(t, want, entries, "the deadline came first")
	})
}

// The deadline comes before the stores are read. What lies in them is named all the same.
func TestDeadlineBeforeTheScanStillNamesTheBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 500, 10)
		ctx, stop := context.WithCancelCause(t.Context())
		stop(context.DeadlineExceeded) // as the agent does it
		_, entries := a.drain(t, ctx)
		wantLost(t, want, entries, "deadline")
	})
}

// The cap is so low that the limiter would have to wait until after the deadline, and refuses.
func TestDrainUnderALowCapEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 10, 4*wire.ChunkBytes)
		tr := newTrip(t, a, newNode(t, "b"))
		tr.cfg.MaxBytesPerSecond = 1000
		if sum, _ := tr.run(within(t, 10*time.Second)); sum.Total().Blocks != 10 || sum.Lost.Blocks == 0 {
			t.Errorf("got %+v, want 10 blocks accounted for", sum)
		}
	})
}

// A cap was set far too low by mistake. When it is lifted, the lanes that wait for it go on too: each would wait for minutes.
func TestCapThatIsLiftedHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 10, 4*wire.ChunkBytes)
		tr := newTrip(t, a, newNode(t, "b"))
		tr.cfg.MaxBytesPerSecond = 100
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { tr.drain.Limit(0) })
		if sum, _ := tr.run(t.Context()); sum.Moved.Blocks != 10 || time.Since(began) > 10*time.Second {
			t.Errorf("got %+v after %v, want 10 blocks moved soon after the cap was lifted", sum, time.Since(began))
		}
	})
}

func TestDrainThatIsStoppedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 10, 100)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("the notice was withdrawn")) })
		_, entries := a.drain(t, ctx)
		wantLost(t, want, entries, "the drain was stopped")
	})
}

// Blocks for which an earlier run has receipts are not sent again, even if it was killed amid the writing of a line.
func TestDrainKilledIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 60, 50_000)
		b, c := newNode(t, "b"), newNode(t, "c")
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond = 400_000
		dir, killed := tr.cfg.Dir, filepath.Join(a.Dir, "killed")
		copied := make(chan error, 1)
		time.AfterFunc(4*time.Second, func() { copied <- os.CopyFS(killed, os.DirFS(dir)) }) // what kill -9 leaves behind
		tr.run(within(t, 4500*time.Millisecond))
		if err := <-copied; err != nil {
			t.Fatal(err)
		}
		receipted := outcome(t, entriesOf(t, killed), manifest.Moved)
		if len(receipted) == 0 || len(receipted) == 60 {
			t.Fatalf("%d of 60 had receipts: the test wants some", len(receipted))
		}
		f, err := os.OpenFile(manifest.Path(killed, manifest.Moved), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(`{"id":"cache/-/f-00`)
		f.Close()

		tr = newTrip(t, a, c)
		tr.cfg.Dir = killed
		sum, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b, c)
		if sum.Moved.Blocks != 60 || len(c.LandedBlocks()) != 60-len(receipted) {
			t.Errorf("got %+v, %d sent again after %d receipts", sum, len(c.LandedBlocks()), len(receipted))
		}
	})
}

// A drain that goes on with an earlier run's account counts as each peer's part, and as the fallback's, what they took then.
func TestResumedDrainTellsWhatEachTookBefore(t *testing.T) {
	for _, at := range []string{"b", "fallback:spill"} {
		t.Run(at, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { resumedAt(t, at) }) })
	}
}

func resumedAt(t *testing.T, at string) {
	a, _ := cached(t, 60, 50_000)
	s := newLarder()
	trip := func() *trip {
		if at == "b" {
			return newTrip(t, a, newNode(t, "b"))
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		return tr
	}
	killed := trip()
	killed.cfg.MaxBytesPerSecond = 400_000
	first, _ := killed.run(within(t, 4*time.Second))
	if n := first.Moved.Blocks; n == 0 || n == 60 {
		t.Fatalf("the first run moved %d of 60: the test wants some", n)
	}
	for _, run := range []string{"resumed", "nothing is left"} {
		next := trip()
		sum, _ := next.run(within(t, time.Minute))
		p := next.drain.Progress().Peers
		if sum.Moved.Blocks != 60 || len(p) != 1 || p[0].Node != at || p[0].Moved != sum.Moved {
			t.Errorf("%s: got %+v of %+v, want all at %s", run, p, sum.Moved, at)
		}
	}
}

// A block that changed after its receipt is sent once more and counted once, by the drain that sent it and after a kill -9.
func TestChangedBlockIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 60, 50_000)
		b, c := newNode(t, "b"), newNode(t, "c")
		change := func(n int) {
			id := fmt.Sprintf("cache/-/f-%04d", n)
			want[id] = contentOf("new", 50_000+n)
			write(t, filepath.Join(a.Dir, strings.Replace(id, "/-/", "/", 1)), want[id])
		}
		tr := newTrip(t, a, b)
		tr.cfg.MaxBytesPerSecond = 400_000
		dir, killed := tr.cfg.Dir, filepath.Join(a.Dir, "killed")
		copied := make(chan error, 1)
		time.AfterFunc(4*time.Second, func() { copied <- os.CopyFS(killed, os.DirFS(dir)); change(7) })
		sum, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		if len(entries) != 60 || sum.Moved.Blocks != 60 {
			t.Errorf("got %+v and %d lines, want each of 60 blocks once", sum.Moved, len(entries))
		}
		if err := <-copied; err != nil {
			t.Fatal(err)
		}
		change(9)
		tr = newTrip(t, a, c)
		tr.cfg.Dir = killed
		sum, entries = tr.run(within(t, time.Minute))
		if len(entries) != 60 || sum.Moved.Blocks != 60 {
			t.Errorf("resumed: got %+v and %d lines, want each of 60 blocks once", sum.Moved, len(entries))
		}
	})
}
