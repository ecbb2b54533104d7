package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// spilt is a node whose drain put ten files into a fallback, and that stays after all.
func spilt(t *testing.T) (s *stayed, store *larder) { return spiltOf(t, 10) }

func spiltOf(t *testing.T, files int) (s *stayed, store *larder) {
	t.Helper()
	a, _ := cached(t, files, 100)
	store = newLarder()
	s = &stayed{a: a}
	s.trip = newTrip(t, a)
	s.cfg.Fallback = store.as(lastresort.LayoutBlocks)
	_, s.entries = s.run(within(t, time.Minute))
	s.cfg.Disks = newFakeDisks(1<<40, a.Dir)
	s.cfg.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.forgetful()
	return s, store
}

// statusAway is the status of a read while the block's home does not answer, or nobody ever knew of it.
func (s *stayed) statusAway(t *testing.T, n int, err error) int {
	t.Helper()
	rd := &reading.Reader{Vault: s.a.Vault, Fallback: s.cfg.Fallback, Log: slog.New(slog.DiscardHandler), Fetch: &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{}, err
	}}}
	w := httptest.NewRecorder()
	rd.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/blocks/cache/-/f-%04d", n), nil))
	return w.Code
}

// A withdrawn drain has put blocks into a fallback. No reader gets copies there of blocks that have changed at home since.
func TestAFallbackForgetsWhatIsOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := spilt(t)
		write(t, s.file(3), []byte("newer"))
		s.remove(t, 4)
		l := s.lookBack()
		s.wantTold(t, l) // no peer
		for n, want := range map[int]int{3: 410, 4: 410, 5: 200} {
			if got := s.statusAway(t, n, nil); got != want {
				t.Errorf("file %d: a reader is told %d, want %d", n, got, want)
			}
		}
		if got := s.statusAway(t, 3, errors.New("no coordinator")); got != 503 {
			t.Errorf("while nobody says where it is: a reader is told %d, want 503", got)
		}
		puts := len(store.putNames())
		if l.look(t.Context()); len(store.putNames()) != puts {
			t.Error("the fallback is told again")
		}
		// The newer one goes there with the next drain.
		again := newTrip(t, s.a)
		again.cfg.Dir, again.cfg.Fallback = again.cfg.Dir+"-2", s.cfg.Fallback
		_, entries := again.run(within(t, time.Minute))
		wantInFallback(t, s.cfg.Fallback, map[string][]byte{"cache/-/f-0003": []byte("newer"), "cache/-/f-0005": contentOf("f-0005", 100)}, entries)
		if got := s.statusAway(t, 3, nil); got != 200 {
			t.Errorf("what was put there again: a reader is told %d", got)
		}
		// A late order to forget the older version does not touch it.
		was := s.lookBack()
		was.look(t.Context())
		if got := s.statusAway(t, 3, nil); got != 200 {
			t.Errorf("what was put there again, after another look: a reader is told %d", got)
		}
	})
}

// slowToForget is a larder that takes its time for the records of what is out of date, as a bucket does that first says "slow down".
type slowToForget struct{ *larder }

func (s slowToForget) Put(ctx context.Context, name string, size int64, content io.Reader, fresh bool) error {
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if bytes.Contains(b, []byte(`"forgotten":true`)) {
		time.Sleep(time.Second)
	}
	return s.larder.Put(ctx, name, size, bytes.NewReader(b), fresh)
}

// A drain puts a newer version of a block into the fallback while that is about to be told that the older one is out of date.
func TestAFallbackKeepsWhatIsPutWhileItForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := spilt(t)
		s.cfg.Fallback.Objects = slowToForget{store}
		write(t, s.file(3), []byte("newer"))
		l := s.lookBack()
		looked := await.Beside(func() { l.look(t.Context()) })
		time.Sleep(100 * time.Millisecond)
		again := newTrip(t, s.a)
		again.cfg.Dir, again.cfg.Fallback = again.cfg.Dir+"-2", s.cfg.Fallback
		_, entries := again.run(within(t, time.Minute))
		<-looked
		wantInFallback(t, s.cfg.Fallback, map[string][]byte{"cache/-/f-0003": []byte("newer")}, entries)
	})
}

// A storage takes 30 ms for each record. It forgets many blocks at once, even in the few seconds that a drain has for
// that.
func TestAFallbackForgetsManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const files = 1200
		s, store := spiltOf(t, files)
		var others []int
		for n := range files / 3 {
			others = append(others, 3*n)
		}
		s.remove(t, others...)
		store.latency = 30 * time.Millisecond
		puts := len(store.putNames())
		store.most = 0
		began := time.Now()
		s.lookBack().look(t.Context())
		if n, took := len(store.putNames())-puts, time.Since(began); n != files/3 || took > 2*time.Second {
			t.Errorf("%d were forgotten in %v, %d at once, want %d in less than two seconds: one by one is twelve", n, took, store.most, files/3)
		}
		if store.most > forgetPuts {
			t.Errorf("%d at once, want %d at most", store.most, forgetPuts)
		}
	})
}

// A fallback that does not answer is told later.
func TestAFallbackThatIsSilentIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := spilt(t)
		write(t, s.file(3), []byte("newer"))
		store.trip = func(string) error { return errors.New("no answer") }
		l := s.lookBack()
		l.look(t.Context())
		store.trip = nil
		if got := s.statusAway(t, 3, nil); got != 200 {
			t.Fatalf("got %d", got)
		}
		l.look(t.Context())
		if got := s.statusAway(t, 3, nil); got != 410 {
			t.Errorf("a reader is told %d, want 410", got)
		}
	})
}

// A node cannot make a fallback forget blocks of another node, nor a version that it does not name.
func TestAFallbackKeepsWhatIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := spilt(t)
		var e manifest.Entry
		for _, e = range s.entries {
			if e.ID == "cache/-/f-0003" {
				break
			}
		}
		f := s.cfg.Fallback
		for name, c := range map[string]struct {
			node, tag string
			want      error
		}{"another node's": {"b", e.Tag(), catalog.ErrNotOwned}, "another version": {"a", `"file-1-1-"`, catalog.ErrAnother}} {
			if err := f.Forget(t.Context(), "cache/-/f-0003", c.node, c.tag); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
		if got := s.statusAway(t, 3, nil); got != 200 {
			t.Errorf("a reader is told %d", got)
		}
		if err := f.Forget(t.Context(), "cache/-/f-0003", "a", e.Tag()); err != nil {
			t.Error(err)
		}
		if got := s.statusAway(t, 3, nil); got != 410 {
			t.Errorf("a reader is told %d, want 410", got)
		}
	})
}
