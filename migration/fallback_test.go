package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// larder is storage outside of the fleet in memory, with a clock that a bubble knows.
type larder struct {
	mu     sync.Mutex
	things map[string][]byte
	since  map[string]time.Time
	puts   []string // in the order in which they became durable
	busy   int      // puts under way, and the most at once so far
	most   int

	large, mostLarge int // of more than smallUpload

	rate    int64         // bytes per second of each put; 0: no limit
	latency time.Duration // of each put
	trip    func(name string) error
}

func newLarder() *larder { return &larder{things: map[string][]byte{}, since: map[string]time.Time{}} }

func (s *larder) enter(name string) (wait func(bytes int), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	s.most = max(s.most, s.busy)
	rate := s.rate
	if s.trip != nil {
		err = s.trip(name)
	}
	return func(bytes int) {
		if rate > 0 {
			time.Sleep(time.Duration(int64(bytes) * int64(time.Second) / rate))
		}
	}, err
}

func (s *larder) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	wait, err := s.enter(name)
	large := int(min(1, bytes/(smallUpload+1)))
	s.mu.Lock()
	s.large += large
	s.mostLarge = max(s.mostLarge, s.large)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		s.large -= large
	}()
	time.Sleep(s.latency)
	if err != nil {
		return err
	}
	var all []byte
	buf := make([]byte, 4096)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := content.Read(buf)
		all = append(all, buf[:n]...)
		wait(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if int64(len(all)) != bytes {
		return fmt.Errorf("content of %d bytes, want %d", len(all), bytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.things[name] != nil && fresh {
		return fs.ErrExist
	}
	s.things[name], s.since[name] = append([]byte{}, all...), time.Now()
	s.puts = append(s.puts, name)
	return nil
}

func (s *larder) Get(_ context.Context, name string, from int64, into []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trip != nil {
		if err := s.trip(name); err != nil {
			return 0, err
		}
	}
	if s.things[name] == nil {
		return 0, fs.ErrNotExist
	}
	return bytes.NewReader(s.things[name]).ReadAt(into, from)
}

func (s *larder) Stat(_ context.Context, name string) (int64, string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.things[name] == nil {
		return 0, "", time.Time{}, fs.ErrNotExist
	}
	return int64(len(s.things[name])), fmt.Sprint(len(s.things[name])), s.since[name], nil
}

func (s *larder) putNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.puts)
}

// missed says that the fleet lacks a node which may be back in a moment.
func missed() bool { return true }

func (s *larder) as(layout string) *lastresort.Storage {
	return &lastresort.Storage{Name: "spill", Layout: layout, Streams: 4, Objects: s}
}

// fromFallback reads a block as a node does that never had it.
func fromFallback(t testing.TB, f *lastresort.Storage, id string) []byte {
	t.Helper()
	c, err := f.Open(t.Context(), inventory.BlockID(id))
	if err != nil {
		t.Fatalf("open %s: %v", id, err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("read %s: %v", id, err)
	}
	return b
}

func wantInFallback(t testing.TB, f *lastresort.Storage, want map[string][]byte, entries []manifest.Entry) {
	t.Helper()
	moved := outcome(t, entries, manifest.Moved)
	for id, content := range want {
		if e := moved[string(inventory.BlockID(id).Block())]; e.Peer != "fallback:spill" {
			t.Errorf("%s: got %+v, want it moved to fallback:spill", id, e)
			continue
		}
		if got := fromFallback(t, f, id); !bytes.Equal(got, content) {
			t.Errorf("%s reads back as %d bytes, want the %d that were sent", id, len(got), len(content))
		}
	}
}

func TestDrainWithoutPeersGoesToTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 50, 100)
		write(t, filepath.Join(a.Dir, "cache", "large"), contentOf("large", 5*wire.ChunkBytes+3))
		write(t, filepath.Join(a.Dir, "cache", "empty"), nil)
		want["cache/-/large"], want["cache/-/empty"] = contentOf("large", 5*wire.ChunkBytes+3), []byte{}
		s := newLarder()
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		began := time.Now()
		sum, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if sum.Moved.Blocks != 52 || sum.Lost.Blocks != 0 || time.Since(began) > 10*time.Second {
			t.Errorf("got %+v after %v", sum, time.Since(began))
		}
		if s.most > 4 {
			t.Errorf("%d uploads at once, want 4 at most", s.most)
		}
		if _, there := s.things["lifeboat-blocks/a/cache/-/large"]; !there {
			t.Error("the bytes are not under the block's id")
		}
	})
}

func TestFallbackIsLeftAloneWhilePeersTakeBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 40, 100_000)
		b, full := newNode(t, "b"), newNode(t, "full")
		full.Room = roomFor(0)
		s := newLarder()
		tr := newTrip(t, a, b, full)
		tr.cfg.MaxBytesPerSecond = 100_000 // 40 s, and one peer in trouble all the time
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 2*time.Minute))
		wantThere(t, want, entries, b)
		if names := s.putNames(); len(names) != 0 {
			t.Errorf("%d contents went to the fallback: %v", len(names), names[:min(3, len(names))])
		}
	})
}

func TestWhatPeersHaveNoRoomForGoesToTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 50, 1000)
		b := newNode(t, "b")
		b.Room = roomFor(20_500)
		s := newLarder()
		tr := newTrip(t, a, b)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		began := time.Now()
		sum, entries := tr.run(within(t, time.Minute))
		if sum.Lost.Blocks != 0 || time.Since(began) > 15*time.Second {
			t.Fatalf("got %+v after %v", sum, time.Since(began))
		}
		held := map[string]bool{}
		for _, h := range b.LandedBlocks() {
			held[string(h.ID)] = true
		}
		if len(held) < 10 {
			t.Errorf("the peer took %d blocks, want what it has room for", len(held))
		}
		for id := range held {
			delete(want, id)
		}
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}

func TestPeersThatRefuseLeaveTheBlocksToTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 1000)
		b := newNode(t, "b")
		b.Refuse = "it leaves too"
		s := newLarder()
		tr := newTrip(t, a, b)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 30*time.Second))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}

// One peer greets and then takes nothing; another takes everything and never answers.
func TestPeersThatOnlyLookWellLeaveTheBlocksToTheFallback(t *testing.T) {
	for name, patience := range map[string]time.Duration{"refuses each block": peerTimeout, "is silent": peerGone} {
		answers := patience == peerTimeout
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 1000)
				s := newLarder()
				tr := newTrip(t, a)
				tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
				tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
					defer conn.Close()
					fr := granted(conn)
					for {
						f, err := fr.Next()
						if err != nil {
							return
						}
						if f.Type == wire.FrameClose && answers {
							conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, []wire.Verdict{{Transfer: f.Transfer, Code: wire.VerdictFailed, Reason: "its disk refuses"}})))
						}
					}
				}}
				tr.cfg.Peers = func() []Peer { return []Peer{{Node: "b"}} }
				began := time.Now()
				_, entries := tr.run(within(t, time.Minute))
				wantInFallback(t, tr.cfg.Fallback, want, entries)
				if took := time.Since(began); took < patience || took > 2*patience {
					t.Errorf("took %v, want soon after the %v that a peer has", took, patience)
				}
			})
		})
	}
}

// A peer falls silent. Blocks that it has not been sent do not wait until the peer is given up.
func TestFallbackHasWhatIsLeftOnceThePeerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 60, 2<<20)
		s := newLarder()
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
			granted(conn)
			time.Sleep(time.Minute)
			conn.Close()
		}}
		tr.cfg.Peers = func() []Peer { return []Peer{{Node: "b"}} }
		tr.run(within(t, peerTimeout))
		if n := len(s.putNames()) / 2; n < len(want)-4 {
			t.Errorf("%d blocks were put, want all but those that the peer has a part of", n)
		}
	})
}

// The layout spark-fallback is what Spark's own fallback storage would have written.
func TestSparkFallbackLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const app = "application_1700000000000_0042"
		a := newNode(t, "a", with(sparkStore, "d0", "d1"), with(filesStore, "cache"))
		managers := []string{filepath.Join(a.Dir, "d0/appcache", app, "blockmgr-aa"), filepath.Join(a.Dir, "d1/appcache", app, "blockmgr-bb")}
		want := map[string][]byte{}
		for m := range 5 {
			for name, content := range writeMapOutput(t, managers, 7, m, 1000, 0, 2000) {
				want["spark/"+app+"/"+name] = content
			}
		}
		dir, sub := inventory.SparkPlace("rdd_5_25", 2)
		write(t, filepath.Join(managers[dir], sub, "rdd_5_25"), contentOf("rdd", 500))
		write(t, filepath.Join(a.Dir, "cache/x"), contentOf("x", 10))
		s := newLarder()
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutSpark)
		_, entries := tr.run(within(t, time.Minute))
		rest := map[string][]byte{"spark/" + app + "/rdd_5_25": contentOf("rdd", 500), "cache/-/x": contentOf("x", 10)}
		wantInFallback(t, tr.cfg.Fallback, rest, entries)
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		puts := s.putNames()
		for id, content := range want {
			name := inventory.BlockID(id).Name()
			at := fmt.Sprintf("%s/7/%d/%s", app, inventory.JavaHash(name), name)
			if !bytes.Equal(s.things[at], content) {
				t.Errorf("%s is not what Spark would have written", at)
			}
			if data, ok := strings.CutSuffix(name, ".index"); ok {
				dataAt := fmt.Sprintf("%s/7/%d/%s", app, inventory.JavaHash(data+".data"), data+".data")
				if slices.Index(puts, dataAt) > slices.Index(puts, at) {
					t.Errorf("%s became visible before its data", at)
				}
			}
		}
		for _, name := range puts {
			if !lastresort.Owns(name) {
				t.Errorf("%s would never be removed", name)
			}
		}
		if s.things["lifeboat-blocks/a/spark/"+app+"/rdd_5_25"] == nil {
			t.Error("the cached block is not among the blocks")
		}
	})
}

// A reader also finds what Spark itself put there, as 3.1 and as later versions place it, if it is whole.
func TestReaderFindsWhatSparkPutIntoItsFallback(t *testing.T) {
	const app = "app-20260101000000-0001"
	files := writeMapOutput(t, []string{t.TempDir()}, 3, 4, 100, 50)
	for _, where := range []func(app, name string) string{
		func(app, name string) string { return fmt.Sprintf("%s/3/%d/%s", app, inventory.JavaHash(name), name) },
		func(app, name string) string { return app + "/3/" + name },
	} {
		s := newLarder()
		f := s.as(lastresort.LayoutSpark)
		index := where(app, "shuffle_3_4_0.index")
		s.things[index] = files["shuffle_3_4_0.index"]
		if _, err := f.Open(t.Context(), "spark/"+app+"/shuffle_3_4_0.data"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an index without data: got %v, want fs.ErrNotExist", err)
		}
		s.things[where(app, "shuffle_3_4_0.data")] = files["shuffle_3_4_0.data"][:100]
		if _, err := f.Open(t.Context(), "spark/"+app+"/shuffle_3_4_0.index"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an index with half its data: got %v, want fs.ErrNotExist", err)
		}
		s.things[where(app, "shuffle_3_4_0.data")] = files["shuffle_3_4_0.data"]
		for _, name := range []string{"shuffle_3_4_0.data", "shuffle_3_4_0.index"} {
			if got := fromFallback(t, f, "spark/"+app+"/"+name); !bytes.Equal(got, files[name]) {
				t.Errorf("%s at %s differs", name, index)
			}
		}
		rd := &reading.Reader{Vault: newNode(t, "r").Vault, Fallback: f, Log: slog.New(slog.DiscardHandler)}
		if status, body, _ := get(t, rd, "spark/"+app+"/shuffle_3_4_0", ""); status != http.StatusMultipleChoices || !bytes.Contains(body, []byte("shuffle_3_4_0.data")) {
			t.Errorf("the map output: got %d %s, want 300 and its members", status, body)
		}
		s.trip = func(name string) error {
			if name == index {
				return errors.New("slow down")
			}
			return nil
		}
		if status, _, _ := get(t, rd, "spark/"+app+"/shuffle_3_4_0.data", ""); status != http.StatusServiceUnavailable {
			t.Errorf("while the index cannot be read: got %d, want 503", status)
		}
	}
}

func TestDrainIntoAFallbackKilledIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 40, 150_000)
		s := newLarder()
		s.rate = 100_000
		tr := newTrip(t, a)
		tr.cfg.Fallback, tr.cfg.Missed = s.as(lastresort.LayoutBlocks), missed
		ctx, kill := context.WithCancel(t.Context())
		time.AfterFunc(6*time.Second, kill)
		tr.run(ctx)
		before := s.putNames()
		if len(before) < 10 || len(before) > 70 {
			t.Fatalf("%d contents were put before the kill: the test wants some", len(before))
		}
		again := newTrip(t, a)
		again.cfg.Dir = filepath.Join(a.Dir, "nothing-is-remembered") // not even the ledger
		again.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := again.run(within(t, time.Minute))
		wantInFallback(t, again.cfg.Fallback, want, entries)
		seen := map[string]bool{}
		for _, name := range s.putNames() {
			if seen[name] && strings.HasPrefix(name, "lifeboat-records/") {
				t.Errorf("%s was put twice", name)
			}
			seen[name] = true
		}
		twice := len(s.putNames()) - len(seen)
		if twice > 4 { // bytes were there, their records were not
			t.Errorf("%d contents were sent twice, want those under way at most", twice)
		}
	})
}

func TestUploadsThatCannotFinishAreNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 8, 2<<20)
		write(t, filepath.Join(a.Dir, "cache/large"), contentOf("large", 64<<20))
		s := newLarder()
		s.rate = 1 << 20 // of each stream: 64 s for the large one
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		deadline := time.Now().Add(30 * time.Second)
		tr.cfg.Until = func() time.Time { return deadline }
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Second, func() { stop(context.DeadlineExceeded) })
		_, entries := tr.run(ctx)
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		wantLost(t, map[string][]byte{"cache/-/large": nil}, entries, "cannot be uploaded before the deadline")
		if over := time.Since(deadline); over > receiptGrace {
			t.Errorf("the drain ended %v after its deadline", over)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy != 0 {
			t.Errorf("%d uploads are under way", s.busy)
		}
	})
}

func TestFallbackInTroubleIsNamed(t *testing.T) {
	for _, trouble := range []string{"forbidden", "no space left on device"} {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 10, 100)
			s := newLarder()
			s.trip = func(string) error { return errors.New(trouble) }
			tr := newTrip(t, a)
			tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
			began := time.Now()
			_, entries := tr.run(within(t, 20*time.Second))
			wantLost(t, want, entries, trouble)
			wantLost(t, want, entries, "fallback:spill")
			if took := time.Since(began); took > 23*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A bucket that stumbles is tried again.
func TestFallbackThatRecoversTakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 30, 100)
		s := newLarder()
		well := time.Now().Add(8 * time.Second)
		s.trip = func(string) error {
			if time.Now().Before(well) {
				return errors.New("slow down")
			}
			return nil
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}

func TestFallbackServesNoFlippedBit(t *testing.T) {
	a, _ := cached(t, 1, 3*wire.ChunkBytes)
	s := newLarder()
	tr := newTrip(t, a)
	tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
	tr.run(t.Context())
	const id = "cache/-/f-0000"
	want := contentOf("f-0000", 3*wire.ChunkBytes)
	rd := &reading.Reader{Vault: newNode(t, "r").Vault, Fallback: tr.cfg.Fallback, Log: slog.New(slog.DiscardHandler)}
	status, body, header := get(t, rd, id, "bytes=300000-300099")
	if status != http.StatusPartialContent || !bytes.Equal(body, want[300000:300100]) || header.Get("Lifeboat-Node") != "fallback:spill" {
		t.Fatalf("range: got %d, %d bytes, %v", status, len(body), header)
	}
	etag := header.Get("ETag")
	if status, body, header = get(t, rd, id, ""); status != http.StatusOK || !bytes.Equal(body, want) || header.Get("ETag") != etag || strings.HasPrefix(etag, "W/") || etag == "" {
		t.Fatalf("whole: got %d, %d bytes, ETag %s after %s", status, len(body), header.Get("ETag"), etag)
	}
	for name := range maps.Keys(s.things) {
		whole := s.things[name]
		for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
			flipped := slices.Clone(whole)
			flipped[at] ^= 4
			s.things[name] = flipped
			status, body, _ := get(t, rd, id, "")
			if status == http.StatusOK && !bytes.Equal(body, want) {
				t.Errorf("%s, bit flipped at %d: other bytes were served", name, at)
			}
			if strings.HasPrefix(name, "lifeboat-blocks/") && at == 0 && status != http.StatusGone {
				t.Errorf("%s, first bit flipped: got %d, want 410", name, status)
			}
		}
		s.things[name] = whole
	}
	if status, _, _ := get(t, rd, "cache/-/never", ""); status != http.StatusNotFound {
		t.Errorf("an unknown block: got %d, want 404", status)
	}
	s.trip = func(string) error { return errors.New("away") }
	if status, body, _ := get(t, rd, id, ""); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "fallback:spill: away") {
		t.Errorf("a fallback that is away: got %d %s, want 503", status, body)
	}
}

// A reader is served by holders first, and by the fallback if no holder has the block. A request that an agent makes for
// a reader is not passed on.
func TestReaderTurnsToTheFallbackLast(t *testing.T) {
	a, _ := cached(t, 1, 100)
	s := newLarder()
	tr := newTrip(t, a)
	tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
	tr.run(t.Context())
	for why, locate := range map[string]func(context.Context, inventory.BlockID, bool) (reading.Location, error){
		"lost": func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
			return reading.Location{Lost: true}, nil
		},
		"unknown": func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
			return reading.Location{}, nil
		},
		"away": func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
			return reading.Location{}, errors.New("no coordinator")
		},
	} {
		rd := &reading.Reader{Vault: newNode(t, "r").Vault, Fallback: tr.cfg.Fallback, Fetch: &reading.Fetcher{Locate: locate}, Log: slog.New(slog.DiscardHandler)}
		for _, target := range []string{"/blocks/cache/-/f-0000", "/blocks/cache/-/f-0000?redirect=true"} {
			if status, body, _ := ask(t, rd, http.MethodGet, target, http.Header{}); status != http.StatusOK || !bytes.Equal(body, contentOf("f-0000", 100)) {
				t.Errorf("%s, %s: got %d", why, target, status)
			}
		}
		if status, _, _ := ask(t, rd, http.MethodGet, "/blocks/cache/-/f-0000", http.Header{"Lifeboat-Hop": {"1"}}); status != http.StatusNotFound {
			t.Errorf("%s, asked by an agent: got %d, want 404", why, status)
		}
	}
}

func TestFallbackSkipsAFileThatIsDeletedAndResendsOneThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 3, 100)
		p := filepath.Join(a.Dir, "cache/restless")
		write(t, p, contentOf("old", 300_000))
		s := newLarder()
		s.rate = 100_000
		tr := newTrip(t, a)
		tr.cfg.Fallback, tr.cfg.Missed = s.as(lastresort.LayoutBlocks), missed
		time.AfterFunc(time.Second, func() { os.Remove(filepath.Join(a.Dir, "cache/f-0001")) })
		time.AfterFunc(4*time.Second, func() {
			if err := os.WriteFile(p, contentOf("new", 300_000), 0o644); err != nil {
				t.Error(err)
			}
		})
		_, entries := tr.run(within(t, time.Minute))
		delete(want, "cache/-/f-0001")
		want["cache/-/restless"] = contentOf("new", 300_000)
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if e := outcome(t, entries, manifest.Skipped)["cache/-/f-0001"]; !strings.Contains(e.Reason, "deleted") {
			t.Errorf("got %+v, want it skipped as deleted", e)
		}
	})
}
