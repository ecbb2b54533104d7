package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A batch has the blocks that would be handed out one by one, as each uses up room and time.
func TestBatchKeepsTheRules(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	for i, size := range []int{100, 100, 100, 100, 1000} {
		if err := p.Add(t.Context(), block(i, size)); err != nil {
			t.Fatal(err)
		}
	}
	p.Seal()
	for _, c := range []struct {
		what                    string
		blocks                  int
		bytes, room, affordable int64
		want                    int
	}{
		{"so many", 3, unlimited, unlimited, unlimited, 3},
		{"until it has enough", 9, 150, unlimited, unlimited, 2},
		{"what has room", 9, unlimited, 399, unlimited, 3},
		{"what is there in time", 9, unlimited, unlimited, 250, 2},
		{"all", 9, unlimited, unlimited, unlimited, 5},
	} {
		batch, _, err := p.Take(nil, c.blocks, c.bytes, "b", RoomOf(c.room), c.affordable, nil)
		if err != nil || len(batch) != c.want {
			t.Fatalf("%s: got %d blocks and %v, want %d", c.what, len(batch), err, c.want)
		}
		for i, e := range batch {
			if e.ID != block(i, 0).ID {
				t.Errorf("%s: got %s as number %d", c.what, e.ID, i)
			}
		}
		if p.Settled() {
			t.Errorf("%s: the plan is settled while a lane has blocks of it", c.what)
		}
		p.PutBack(batch)
	}
}

func TestPlanHandsOutWhatFitsTheTime(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	for i, size := range []int{5000, 9 << 20, 100 << 20, 4000} {
		b := block(i, size)
		b.Value = time.Duration(size) * time.Microsecond // all of one rank
		p.Add(t.Context(), b)
	}
	p.Seal()
	for _, want := range []int{0, 3} {
		if e, ok, _, err := p.takeInTime("b", unlimited, 1<<20); !ok || err != nil || e.ID != block(want, 0).ID {
			t.Fatalf("got %v, %v, %v, want block %d", e.ID, ok, err, want)
		}
	}
	if _, ok, _, err := p.takeInTime("b", unlimited, 1<<20); ok || err != ErrNoTime {
		t.Errorf("got %v, %v, want %v", ok, err, ErrNoTime)
	}
	if _, ok, _, err := p.takeInTime("b", 1<<20, unlimited); ok || err != ErrNoRoom {
		t.Errorf("got %v, %v, want %v", ok, err, ErrNoRoom)
	}
	if e, ok, _, err := p.takeInTime("b", unlimited, 20<<20); !ok || err != nil || e.ID != block(1, 0).ID {
		t.Errorf("got %v, %v, %v, want the block that fits a longer time", e.ID, ok, err)
	}
}

// Thousands of blocks that do not fit do not hide the small ones behind them, nor do they come into memory.
func TestSmallBlocksAreFoundBehindManyLarge(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	for i := range 5000 {
		b := block(i, 2<<30)
		b.Value = time.Hour
		p.Add(t.Context(), b)
	}
	small := block(5000, 1000)
	small.Value = time.Millisecond
	p.Add(t.Context(), small)
	p.Seal()
	if e, ok, _, err := p.takeInTime("b", unlimited, 1<<20); !ok || err != nil || e.ID != block(5000, 0).ID {
		t.Errorf("got %v, %v, %v, want the small block", e.ID, ok, err)
	}
	if len(p.returned) > 0 {
		t.Errorf("%d large blocks came into memory", len(p.returned))
	}
}

// A plan hands out blocks that a peer has a place for, past blocks that its vault has no room for.
func TestPlanHandsOutWhatHasAPlace(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	for i := range 3 * maxReturned {
		if err := p.Add(t.Context(), block(i, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	shuffle := inventory.Block{ID: "spark/b/x", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, Members: []inventory.Member{{Name: "x", Bytes: 1 << 30}}}
	if err := p.Add(t.Context(), shuffle); err != nil {
		t.Fatal(err)
	}
	p.Seal()
	batch, _, err := p.Take(nil, many, unlimited, "b", Room{Most: 2 << 30, Vault: 2500, Places: []string{"spark"}}, unlimited, nil)
	if err != nil || len(batch) != 3 || batch[2].ID != shuffle.ID && batch[0].ID != shuffle.ID {
		t.Fatalf("got %d blocks and %v, want two of the cache and what has its place", len(batch), err)
	}
	if _, _, err := p.Take(nil, many, unlimited, "b", Room{Most: 1 << 20, Vault: 999, Places: []string{"spark"}}, unlimited, nil); err != ErrNoRoom {
		t.Errorf("got %v, want %v", err, ErrNoRoom)
	}
}

// Spares leave after all else, in the order of their worth, and stay so in the plan's spool.
func TestSparesLeaveLast(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	block := func(id inventory.BlockID, value time.Duration, spare bool) inventory.Block {
		return inventory.Block{ID: id, Members: []inventory.Member{{Name: id.Name(), Bytes: 100}}, Value: value, Spare: spare}
	}
	for _, b := range []inventory.Block{block("s/-/a", time.Minute, true), block("s/-/b", 10*time.Minute, true), block("s/-/c", time.Minute, false), block("s/-/d", time.Second, false)} {
		if err := p.Add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for {
		e, ok, _, _ := p.takeOne("c", 1<<30)
		if !ok {
			break
		}
		got = append(got, fmt.Sprint(e.ID.Name(), e.Spare))
	}
	if want := []string{"cfalse", "dfalse", "btrue", "atrue"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
