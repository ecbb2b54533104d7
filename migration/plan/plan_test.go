package plan

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	unlimited = 1 << 60
	many      = 128 // blocks at once
)

// next waits for what take hands out.
func (p *Plan) next(ctx context.Context, peer string, room int64) (e Entry, err error) {
	err = p.Await(ctx, func() (ok bool, wait time.Duration, err error) {
		e, ok, wait, err = p.takeOne(peer, room)
		return ok, wait, err
	})
	return e, err
}

// Each script in testdata is a list of blocks ("id kind bytes"), then "-- order" and the order in which they leave.
func TestPlanOrder(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			text, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), "-- order\n")
			p := New(Config{Dir: t.TempDir()})
			for lines := bufio.NewScanner(strings.NewReader(input)); lines.Scan(); {
				f := strings.Fields(lines.Text())
				if len(f) == 0 || f[0] == "#" {
					continue
				}
				size, err := strconv.ParseInt(f[2], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				p.Add(t.Context(), inventory.Block{ID: inventory.BlockID(f[0]), Kind: f[1], Members: []inventory.Member{{Name: "x", Bytes: size}}})
			}
			p.Seal()
			var got bytes.Buffer
			for {
				e, err := p.next(t.Context(), "b", unlimited)
				if err == ErrSettled {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(&got, e.ID)
				p.Settle(1)
			}
			if *update {
				if err := os.WriteFile(script, []byte(input+"-- order\n"+got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != want {
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
		})
	}
}

func block(i, size int) inventory.Block {
	name := fmt.Sprintf("some/directory/of/a/store/file-%08d", i)
	return inventory.Block{ID: inventory.BlockID("cache/-/" + name), Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []inventory.Member{{Name: name, Bytes: int64(size), Path: name}}}
}

func TestPlanKeepsLittleInMemory(t *testing.T) {
	const count = 100_000
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	before := heap()
	for i := range count {
		if err := p.Add(t.Context(), block(i, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	p.Seal()
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("100,000 planned blocks take %d KiB of memory", grown>>10)
	}
	for i := range count {
		e, ok, _, err := p.takeOne("b", unlimited)
		if !ok || err != nil || e.ID != block(i, 0).ID {
			t.Fatalf("block %d came back as %s, %v, %v", i, e.ID, ok, err)
		}
		p.Settle(1)
	}
	if !p.Settled() {
		t.Error("all were taken and settled, and the plan is not")
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A disk that takes no spools must not end a drain, and must not let memory grow either: the scan waits for the lanes.
func TestPlanWithoutADiskMakesTheScanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Dir: filepath.Join(t.TempDir(), "is not there")})
		const count = 100_000
		added := 0
		go func() {
			for i := range count {
				if p.Add(t.Context(), block(i, 1000)) == nil {
					added++
				}
			}
			p.Seal()
		}()
		synctest.Wait()
		if added == count || p.unspooled() > maxUnspooled+1<<10 || p.Trouble() == nil {
			t.Fatalf("%d blocks planned in %d bytes, trouble %v", added, p.unspooled(), p.Trouble())
		}
		for i := range count {
			e, err := p.next(t.Context(), "b", unlimited)
			if err != nil || e.ID != block(i, 0).ID {
				t.Fatalf("block %d came back as %s, %v", i, e.ID, err)
			}
			p.Settle(1)
		}
		if _, err := p.next(t.Context(), "b", unlimited); err != ErrSettled || added != count {
			t.Errorf("got %v after %d blocks", err, added)
		}
	})
}

func TestPlanThatCannotBeReadBackCountsWhatIsInIt(t *testing.T) {
	dir := t.TempDir()
	p := New(Config{Dir: dir})
	defer p.Close()
	for i := range 5000 {
		p.Add(t.Context(), block(i, 1000))
	}
	p.Add(t.Context(), block(5000, 1<<20)) // of another rank
	spools, _ := filepath.Glob(filepath.Join(dir, "plan-*"))
	if len(spools) != 1 {
		t.Fatalf("got %v, want one spool", spools)
	}
	if err := os.Truncate(spools[0], 100); err != nil {
		t.Fatal(err)
	}
	p.Seal()
	e, ok, _, err := p.takeOne("b", unlimited)
	if !ok || err != nil || e.ID != block(5000, 0).ID {
		t.Errorf("got %s, %v, %v, want the block of the other spool", e.ID, ok, err)
	}
	p.Settle(1)
	if unread := p.Rest(func(Entry, string) {}); unread.Blocks != 5000 || unread.Bytes != 5_000_000 {
		t.Errorf("got %+v unread, want 5000 blocks of 1000 bytes", unread)
	}
}

func TestPlanGivesBackWhenDueAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Dir: t.TempDir()})
		p.Add(t.Context(), block(1, 10))
		p.Seal()
		e, err := p.next(t.Context(), "b", unlimited)
		if err != nil {
			t.Fatal(err)
		}
		p.GiveBack(e, 3*time.Second, "why")
		began := time.Now()
		e, err = p.next(t.Context(), "b", unlimited)
		if err != nil || time.Since(began) != 3*time.Second || e.Met().Why != "why" {
			t.Errorf("got %+v, %v after %v, want it after 3 s", e, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.next(ctx, "b", unlimited); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v while a block is out, want to wait", err)
		}
		if p.Settled() {
			t.Error("settled while a block is out")
		}
		p.Settle(1)
		if _, err := p.next(t.Context(), "b", unlimited); err != ErrSettled {
			t.Errorf("got %v, want settled", err)
		}
	})
}

// A copy of an entry that was taken before the block was given back stays as it was.
func TestSetbacksAreNotChanged(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	p.Add(t.Context(), block(1, 10))
	e, _, _, _ := p.takeOne("b", unlimited)
	p.GiveBack(e, 0, "once")
	again, _, _, _ := p.takeOne("b", unlimited)
	p.GiveBack(again, 0, "twice")
	if e.Met() != (Setbacks{}) || again.Met().Why != "once" {
		t.Errorf("got %+v and %+v", e.Met(), again.Met())
	}
}

// A block goes back to the peer that failed it later than to any other.
func TestPlanOffersAFailedBlockToOthersFirst(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	p.Add(t.Context(), block(1, 10))
	e, _, _, _ := p.takeOne("b", unlimited)
	p.GiveBack(e.After(Setbacks{Shun: "b", Shunned: time.Now().Add(time.Hour)}), 0, "")
	if _, ok, wait, err := p.takeOne("b", unlimited); ok || err != nil || wait < 59*time.Minute {
		t.Errorf("to the same: got %v, %v, wait %v", ok, err, wait)
	}
	if _, ok, _, err := p.takeOne("c", unlimited); !ok || err != nil {
		t.Errorf("to another: got %v, %v", ok, err)
	}
}

func TestPlanIsIdleOnlyWhenNothingIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Dir: t.TempDir()})
		p.Add(t.Context(), block(1, 10))
		e, _, _, _ := p.takeOne("b", unlimited)
		idle := make(chan time.Time, 1)
		go func() { p.Idle(t.Context()); idle <- time.Now() }()
		began := time.Now()
		time.Sleep(time.Second)
		p.GiveBack(e, 0, "")
		time.Sleep(time.Second)
		p.takeOne("b", unlimited)
		time.Sleep(time.Second)
		p.Settle(1)
		if took := (<-idle).Sub(began); took != 3*time.Second {
			t.Errorf("idle after %v, want 3 s", took)
		}
	})
}

func TestPlanHandsOutWhatFits(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	for i, size := range []int{5, 1000, 50} {
		p.Add(t.Context(), block(i, size))
	}
	for _, want := range []int{0, 2} {
		if e, ok, _, err := p.takeOne("b", 100); !ok || err != nil || e.ID != block(want, 0).ID {
			t.Errorf("got %s, %v, %v, want block %d", e.ID, ok, err, want)
		}
	}
	if _, ok, _, err := p.takeOne("b", 100); ok || err != ErrNoRoom {
		t.Errorf("got %v, %v, want that nothing fits", ok, err)
	}
	if e, ok, _, err := p.takeOne("b", 1000); !ok || err != nil || e.ID != block(1, 0).ID {
		t.Errorf("got %s, %v, %v, want the large block where it fits", e.ID, ok, err)
	}
}

// Blocks that were on their way to a peer that failed come back by the thousand. While that peer is not to have them again, they are not
// looked at for each other block that the peer is sent. Other peers take them at once and in their order.
func TestPlanWithThousandsThatReturned(t *testing.T) {
	const count = 15_000
	looks := 0
	p := New(Config{Dir: t.TempDir(), Where: func(inventory.Block) []string { looks++; return nil }})
	defer p.Close()
	for i := range 2 * count {
		p.Add(t.Context(), block(i, 1000))
	}
	shunned := time.Now().Add(time.Hour)
	var sent []Entry
	for range count {
		e, _, _, _ := p.takeOne("b", unlimited)
		sent = append(sent, e)
	}
	for _, e := range sent {
		p.GiveBack(e.After(Setbacks{Shun: "b", Shunned: shunned}), 0, "no receipt")
	}
	takes := func(peer string, first int) {
		t.Helper()
		var batch []Entry
		looks = 0
		for n := first; n < first+count; n += len(batch) {
			var err error
			if batch, _, err = p.Take(batch[:0], many, unlimited, peer, RoomOf(unlimited), unlimited, map[string]bool{"another": true}); err != nil || len(batch) == 0 {
				t.Fatalf("%d blocks after %d: %v", len(batch), n, err)
			}
			for i, e := range batch {
				if e.ID != block(n+i, 0).ID {
					t.Fatalf("%s comes in place of block %d", e.ID, n+i)
				}
			}
		}
		if looks > 2*count*count/many {
			t.Errorf("%s was handed out %d blocks in %d looks", peer, count, looks)
		}
	}
	takes("b", count)
	takes("c", 0)
	if len(p.returned) != 0 || p.outstanding != 2*count {
		t.Errorf("%d are left, %d handed out", len(p.returned), p.outstanding)
	}
}

// A node with many disks and blocks of all sizes has hundreds of spools, none of which fills its buffer for long. While their disk
// takes what they hold, the scan does not wait for lanes.
func TestPlanOfManySpoolsDoesNotMakeTheScanWait(t *testing.T) {
	const count = 80_000
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	disks := [][]string{{"/mnt/d0"}, {"/mnt/d1"}, {"/mnt/d2"}, {"/mnt/d3"}, {"/mnt/d4"}, {"/mnt/d5"}, {"/mnt/d6"}, {"/mnt/d7"}}
	p.cfg.Where = func(b inventory.Block) []string { return disks[b.Members[0].Root] }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range count {
		b := block(i, 1<<(i/len(disks)%30))
		b.Members[0].Root = i % len(disks)
		if err := p.Add(ctx, b); err != nil {
			t.Fatalf("after %d blocks, in %d spools: %v", i, len(p.order), err)
		}
	}
	if n := p.unspooled(); n > maxUnspooled+1<<10 || p.Trouble() != nil {
		t.Errorf("%d bytes are in memory, trouble %v", n, p.Trouble())
	}
	for range count {
		if _, ok, _, err := p.takeOne("b", unlimited); !ok {
			t.Fatalf("not all came back: %v", err)
		}
	}
}

// takeOne hands out the first block that is due at that peer and needs at most room bytes. ok is false when there is none now; wait is
// then how long until one that waits is due (0: nothing waits for the clock).
func (p *Plan) takeOne(peer string, room int64) (e Entry, ok bool, wait time.Duration, err error) {
	return p.takeInTime(peer, room, math.MaxInt64)
}

// takeInTime also leaves alone what is larger than affordable: it would be there too late.
func (p *Plan) takeInTime(peer string, room, affordable int64) (e Entry, ok bool, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.closeGaps()
	return p.one(time.Now(), new(int), peer, RoomOf(room), affordable)
}

// A plan that may take no more goes on in the drain's memory, and those that are found then wait until there is room.
func TestPlanTakesNoMoreThanItMay(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	p.cfg.Spools = diskio.Allow(3 * spoolBuffer)
	const blocks = 5000
	for i := range blocks {
		if err := p.Add(t.Context(), block(i, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if p.Trouble() == nil || p.unspooled() < spoolBuffer {
		t.Errorf("%d bytes are in memory: %v", p.unspooled(), p.Trouble())
	}
	n := 0
	for _, s := range p.order {
		for range p.pops(s.Spool) {
			n++
		}
	}
	if n != blocks {
		t.Errorf("%d blocks came back, want %d", n, blocks)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if all, more := p.cfg.Spools.Take(3*spoolBuffer), p.cfg.Spools.Take(1); all != nil || more == nil {
		t.Errorf("once it is over, what was allowed: %v, and a byte more: %v", all, more)
	}
}
