package migration

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

func opened(t testing.TB, file string) *Appraisals {
	t.Helper()
	told, err := OpenAppraisals(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { told.Close() })
	return told
}

func say(t testing.TB, told *Appraisals, value time.Duration, ids ...string) {
	t.Helper()
	var all []Appraisal
	for _, id := range ids {
		all = append(all, Appraisal{inventory.BlockID(id), value})
	}
	if err := told.Say(all, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// A link carries only some of a node's blocks before the deadline: those that a program said are precious, also after the
// agent was started anew. The next node knows their values too.
func TestWhatProgramsSayIsPreciousLeavesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 40, 256<<10)
		a.Stores[0].Hints = []inventory.Hint{{Match: "f-*", Value: time.Hour}}
		b, c := newNode(t, "b"), newNode(t, "c")
		ids := slices.Sorted(maps.Keys(want))
		precious := ids[25:35]
		file := filepath.Join(a.Dir, "values.db")
		told := opened(t, file)
		say(t, told, time.Second, ids...) // the newest word counts
		say(t, told, 20*time.Hour, precious...)
		if err := told.Close(); err != nil {
			t.Fatal(err)
		}
		tr := newTrip(t, a, b)
		tr.cfg.Told, tr.cfg.MaxBytesPerSecond, tr.cfg.Connections = opened(t, file), 1<<20, 1
		_, entries := tr.run(within(t, 5*time.Second))
		moved := outcome(t, entries, manifest.Moved)
		for _, id := range precious {
			if _, ok := moved[id]; !ok {
				t.Errorf("%s is lost, which was said to be worth most", id)
			}
		}
		if len(moved) == len(want) {
			t.Fatal("all was moved: there was nothing to choose")
		}
		b.drain(t, within(t, time.Minute), c)
		for it, err := range Inventory(t.Context(), c.Stores, c.Vault) {
			value := time.Second
			if slices.Contains(precious, string(it.ID)) {
				value = 20 * time.Hour
			}
			if err != nil || it.Value != value {
				t.Errorf("after two hops %s is worth %v, %v, want %v", it.ID, it.Value, err, value)
			}
		}
	})
}

// A disk that hangs is not asked: nobody could end the wait, and blocks leave without what lies there.
func TestAppraisalsOnADiskThatHangs(t *testing.T) {
	told := opened(t, filepath.Join(t.TempDir(), "values.db"))
	say(t, told, time.Hour, "cache/-/x")
	told.Watch(hung{})
	if got := told.of("cache/-/x"); got != 0 {
		t.Errorf("got %v, want that nothing is known", got)
	}
	told.writing.Lock() // by one who was there before it was known
	defer told.writing.Unlock()
	answer := make(chan error, 1)
	go func() { answer <- told.Say([]Appraisal{{"cache/-/x", time.Minute}}, time.Now()) }()
	select {
	case err := <-answer:
		if !diskio.IsSilent(err) {
			t.Errorf("got %v, want it to say which disk does not answer", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for one who hangs")
	}
	if _, err := told.Tidy(t.Context(), time.Now(), func(inventory.BlockID) bool { return false }); !diskio.IsSilent(err) {
		t.Errorf("got %v, want it to say which disk does not answer", err)
	}
}

type hung struct{ diskio.Disks }

func (hung) Readable(string) bool { return false }

func TestAppraisalsAreCheckedAndBounded(t *testing.T) {
	stores := []*inventory.Store{{StoreConfig: inventory.StoreConfig{Name: "cache", Layout: inventory.LayoutFiles}}, {StoreConfig: inventory.StoreConfig{Name: "spark", Layout: inventory.LayoutSpark}}}
	for _, row := range []struct {
		id    string
		value time.Duration
		want  string // the id that it is kept under, or a word of the error
	}{
		{"cache/-/a=b c", time.Hour, "cache/-/a=b c"},
		{"cache/-/shuffle_0_1_0.data", time.Hour, "cache/-/shuffle_0_1_0.data"},
		{"spark/app-1-1/shuffle_0_1_0.data", time.Hour, "spark/app-1-1/shuffle_0_1_0"},
		{"cache/-/x", 0, "cache/-/x"},
		{"cache/-/x", time.Microsecond, "want 1ms to 720h0m0s"},
		{"cache/-/x", -time.Hour, "want 1ms to 720h0m0s"},
		{"cache/-/x", inventory.MostValue + 1, "want 1ms to 720h0m0s"},
		{"cache/x", time.Hour, "want STORE/SCOPE/NAME"},
		{"other/-/x", time.Hour, "this node has no store other"},
	} {
		p, err := Appraise(stores, row.id, row.value)
		if got := fmt.Sprint(p.ID, err); !strings.Contains(got, row.want) || (err == nil) != (string(p.ID) == row.want) {
			t.Errorf("%s of %v: got %q %v, want %q", row.id, row.value, p.ID, err, row.want)
		}
	}

	told := opened(t, filepath.Join(t.TempDir(), "values.db"))
	say(t, told, time.Hour, "cache/-/x")
	full := func(_ *bbolt.Bucket, size *uint64) error { *size = mostSaidBytes; return nil } // as if by a million others
	if err := told.change(full); err != nil {
		t.Fatal(err)
	}
	err := told.Say([]Appraisal{{"cache/-/x", time.Minute}, {"cache/-/y", time.Minute}}, time.Now())
	if !errors.Is(err, ErrSaidEnough) || told.of("cache/-/x") != time.Hour || told.of("cache/-/y") != 0 {
		t.Errorf("got %v, x worth %v and y %v, want it refused whole", err, told.of("cache/-/x"), told.of("cache/-/y"))
	}
	say(t, told, 0, "cache/-/x")
	if told.of("cache/-/x") != 0 {
		t.Error("what was taken back is still there")
	}
	say(t, told, time.Minute, "cache/-/y")
}

// Values of blocks that are gone are forgotten after a day, those of blocks that are there after a
// month in which nobody said them again.
func TestAppraisalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 2*tidyBatch+10, 1)
		told := opened(t, filepath.Join(a.Dir, "values.db"))
		ids := slices.Sorted(maps.Keys(want))
		var gone []string
		for i := range 3 * tidyBatch {
			gone = append(gone, fmt.Sprintf("cache/-/gone-%d", i))
		}
		say(t, told, time.Hour, ids...)
		say(t, told, time.Hour, gone...)
		tidy := func(want int) {
			t.Helper()
			got, err := told.Tidy(t.Context(), time.Now(), func(id inventory.BlockID) bool {
				if string(id) == gone[1] {
					say(t, told, time.Minute, gone[1]) // at the very moment
				}
				return There(a.Stores, a.Vault, id)
			})
			if err != nil || got != want {
				t.Errorf("forgot %d, %v, want %d", got, err, want)
			}
		}
		tidy(0)
		time.Sleep(absentFor + time.Second)
		say(t, told, time.Hour, gone[0]) // it may be written yet
		tidy(len(gone) - 2)
		if told.of(inventory.BlockID(ids[0])) != time.Hour || told.of(inventory.BlockID(gone[0])) != time.Hour || told.of(inventory.BlockID(gone[1])) != time.Minute || told.of(inventory.BlockID(gone[2])) != 0 {
			t.Error("it forgot the wrong ones")
		}
		time.Sleep(saidFor - absentFor)
		say(t, told, time.Hour, ids[0])
		tidy(len(ids)) // all but that one, and one that never came
		say(t, told, 0, ids[0], gone[1])
		empty := func(_ *bbolt.Bucket, size *uint64) error {
			if *size != 0 {
				t.Errorf("%d bytes are counted of nothing", *size)
			}
			return nil
		}
		if err := told.change(empty); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseSaid(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, v []byte) {
		if value, _ := parseSaid(v); value != 0 && (value < leastValue || value > inventory.MostValue) {
			t.Errorf("%x is worth %v", v, value)
		}
	})
}
