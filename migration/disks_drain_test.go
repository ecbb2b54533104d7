package migration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// carrying is a node with files in a store of two disks and a block on each of two disks of its vault.
func carrying(t testing.TB) (*node, *nodetest.Disks, map[string][]byte) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "c0", "c1")}, "v0", "v1")
	want := map[string][]byte{}
	for i := range 20 {
		name := fmt.Sprint("f-", i)
		want["cache/-/"+name] = contentOf(name, 1000)
		write(t, filepath.Join(n.Dir, fmt.Sprint("c", i%2), name), want["cache/-/"+name])
	}
	for i, d := range n.More {
		id := fmt.Sprint("other/-/v-", i)
		want[id] = contentOf(id, 1000)
		f.Give(d, 1<<40)
		wantDurable(t, landAll(t, n, blockFrames(1, id, want[id])))
		f.Give(d, 0)
	}
	return n, f, want
}

func on(want map[string][]byte, disk string) map[string][]byte {
	here := maps.Clone(want)
	maps.DeleteFunc(here, func(id string, _ []byte) bool {
		i := int(id[len(id)-1] - '0')
		return fmt.Sprint(i%2) != disk
	})
	return here
}

func TestDrainDoesNotWaitForADiskThatDoesNotAnswer(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		f.Set(f.Bad, a.Stores[0].Paths[1], true)
		f.Set(f.Bad, a.More[1], true)
		began := time.Now()
		tr := newTrip(t, a, b)
		written := time.AfterFunc(thaw/2, func() { // other work of the drain gives a dead disk no more time
			write(t, filepath.Join(a.Stores[0].Paths[0], "f-late"), contentOf("f-late", 1000))
		})
		defer written.Stop()
		sum, entries := tr.run(within(t, time.Minute))
		if took := time.Since(began); took > thaw+5*time.Second {
			t.Errorf("took %v", took)
		}
		if got := tr.drain.Progress().Awaits; len(got) > 0 {
			t.Errorf("it is over, and awaits %q", got)
		}
		moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost)
		if len(moved) != 12 || sum.Moved.Blocks != 12 {
			t.Errorf("%d moved, want the 12 on disks that answer", len(moved))
		}
		for id := range on(want, "0") {
			if _, ok := moved[id]; !ok {
				t.Errorf("%s was not moved", id)
			}
		}
		for id, dir := range map[string]string{"other/-/v-1": a.More[1], "(what lies in " + a.Stores[0].Paths[1] + ")": a.Stores[0].Paths[1]} {
			if e := lost[id]; e.Reason != "disk "+dir+" does not answer" {
				t.Errorf("%s: %+v", id, e)
			}
		}
		if len(lost) != 2 {
			t.Errorf("lost %v", lost)
		}
	})
}

func TestDrainTakesADiskThatComesBack(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		f.Set(f.Bad, a.More[1], true)
		time.AfterFunc(thaw/2, func() { f.Set(f.Bad, a.More[1], false) })
		_, entries := newTrip(t, a, b).run(within(t, time.Minute))
		wantThere(t, want, entries, b)
	})
}

// A disk that a drain waited for until its deadline is not waited for after it.
func TestDrainThatIsOverAwaitsNoDisk(t *testing.T) {
	a, f, _ := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		f.Set(f.Bad, a.More[1], true)
		tr := newTrip(t, a, b)
		tr.run(within(t, thaw/2))
		if got := tr.drain.Progress().Awaits; len(got) > 0 {
			t.Errorf("it is over, and awaits %q", got)
		}
	})
}

// Nobody knows what is on a disk that has not answered yet, so the drain waits for it too.
func TestDrainReadsADiskThatAnswersLater(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		f.Set(f.Bad, a.Stores[0].Paths[1], true)
		tr := newTrip(t, a, b)
		began := time.Now()
		time.AfterFunc(thaw/2, func() {
			if got := tr.drain.Progress().Awaits; !slices.Equal(got, a.Stores[0].Paths[1:]) {
				t.Errorf("awaits %q", got)
			}
			f.Set(f.Bad, a.Stores[0].Paths[1], false)
		})
		_, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, b)
		if took := time.Since(began); took > thaw/2+time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// slowLook is a store of files with one directory that takes long to look through.
type slowLook struct {
	inventory.FilesLayout
	part int
	took time.Duration
}

func (l slowLook) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	if part == l.part {
		time.Sleep(l.took)
	}
	return l.FilesLayout.Scan(ctx, s, part, before, yield)
}

// A disk did not answer when the last look came to it, and answers before that look is over. It is not given up: the look may have taken
// minutes.
func TestDiskThatAnswersDuringTheLastLookIsRead(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		silent := a.Stores[0].Paths[1]
		f.Set(f.Bad, silent, true)
		a.Stores[0].Shape = slowLook{part: 0, took: 10 * time.Second}
		time.AfterFunc(15*time.Second, func() { f.Set(f.Bad, silent, false) })
		_, entries := newTrip(t, a, b).run(within(t, 2*time.Minute))
		wantThere(t, want, entries, b)
	})
}

// While its catalog hangs, nobody knows what is in the vault. No answer does not mean that there is nothing.
func TestVaultIsReadOnceItsCatalogAnswers(t *testing.T) {
	for what, only := range map[string]string{"all": "", "one disk of it": "d0"} {
		t.Run(what, func(t *testing.T) {
			a, f := onDisks(t, "a", nil, "d0")
			want := map[string][]byte{}
			f.Give(a.More[0], 1<<40)
			for i := range 5 {
				id := fmt.Sprint("other/-/v-", i)
				want[id] = contentOf(id, 1000)
				wantDurable(t, landAll(t, a, blockFrames(1, id, want[id])))
			}
			thaw := nodetest.HangMeta(a.Vault.Catalog)
			defer thaw()
			changed := await.Beside(func() { a.Vault.Catalog.Forget("cache/-/none") })
			<-time.After(diskio.Suspect / 2) // amid that change, which is a long one by now
			f.Set(f.Bad, a.Vault.Dir, true)
			time.AfterFunc(3*time.Second, func() {
				thaw()
				<-changed
				f.Set(f.Bad, a.Vault.Dir, false)
			})
			tr := newTrip(t, a, newNode(t, "b"))
			if only != "" {
				tr.cfg.Only = []string{filepath.Join(a.Dir, only)}
			}
			sum, entries := tr.run(within(t, 20*time.Second))
			wantMoved(t, sum, entries, slices.Collect(maps.Keys(want)))
		})
	}
}

// If a page of the catalog is damaged, nobody knows what is in the vault either. That will not change, so the drain does not wait, and
// names the vault's directories as lost.
func TestVaultWhoseCatalogIsDamagedIsNamedAsLost(t *testing.T) {
	a, _ := onDisks(t, "a", nil, "d0")
	wantDurable(t, landAll(t, a, blockFrames(1, "other/-/v", contentOf("v", 1000))))
	p := a.Vault.Catalog.Path()
	all, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(all, os.Getpagesize()) {
		if bytes.Contains(page, []byte("other/-/v")) {
			page[8] = 0x10 // a list of free pages
		}
	}
	if err := os.WriteFile(p, all, 0o600); err != nil { // into the same file
		t.Fatal(err)
	}
	began := time.Now()
	_, entries := newTrip(t, a, newNode(t, "b")).run(within(t, 20*time.Second))
	for _, dir := range a.Vault.Paths() {
		if e := outcome(t, entries, manifest.Lost)["(what lies in "+dir+")"]; !strings.Contains(e.Reason, "damaged") {
			t.Errorf("%s: %+v", dir, e)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// A disk answers again during a look, and its blocks are planned. That look is not the last: what is written while those blocks are sent is
// sent too.
func TestWhatIsWrittenWhileAThawedDiskIsEmptiedIsCarried(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	const large = "other/-/large"
	want[large] = contentOf(large, 4<<20)
	f.Give(a.More[1], 1<<40)
	wantDurable(t, landAll(t, a, blockFrames(1, large, want[large])))
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		silent := a.More[1]
		f.Set(f.Bad, silent, true)
		a.Stores[0].Shape = slowLook{part: 0, took: 10 * time.Second}
		tr := newTrip(t, a, b)
		time.AfterFunc(15*time.Second, func() { tr.drain.Limit(256 << 10); f.Set(f.Bad, silent, false) })
		time.AfterFunc(22*time.Second, func() {
			write(t, filepath.Join(a.Stores[0].Paths[0], "f-late"), contentOf("f-late", 100))
		})
		want["cache/-/f-late"] = contentOf("f-late", 100)
		_, entries := tr.run(within(t, 3*time.Minute))
		wantThere(t, want, entries, b)
	})
}

// A lane that reads from a hanging disk is left to it. Blocks of the other disks get another lane.
func TestHungReadDoesNotHoldTheOtherDisks(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	r, err := a.Vault.Catalog.Get("other/-/v-1")
	if err != nil {
		t.Fatal(err)
	}
	// To open a pipe that nobody writes to hangs as a read from a dead disk does.
	p := a.SegmentPath(r.Segment)
	if err := os.Rename(p, p+"-whole"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Skipf("no pipe to hang on: %v", err)
	}
	t.Cleanup(func() {
		if w, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
			w.Close()
		}
	})
	tr := newTrip(t, a, b)
	tr.cfg.Connections = 1
	time.AfterFunc(500*time.Millisecond, func() { f.Set(f.Bad, a.More[1], true) })
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	_, entries := tr.run(ctx)
	delete(want, "other/-/v-1")
	moved := outcome(t, entries, manifest.Moved)
	for id := range want {
		if _, ok := moved[id]; !ok {
			t.Errorf("%s was not moved", id)
		}
	}
	if e := outcome(t, entries, manifest.Lost)["other/-/v-1"]; e.Reason != "disk "+a.More[1]+" does not answer" {
		t.Errorf("got %+v", e)
	}
}

func TestDrainOfOneDiskOnly(t *testing.T) {
	a, f, want := carrying(t)
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		tr := newTrip(t, a, b)
		tr.cfg.Only = []string{filepath.Join(a.Dir, "c1"), filepath.Join(a.Dir, "v1") + "/"}
		sum, entries := tr.run(within(t, time.Minute))
		wantThere(t, on(want, "1"), entries, b)
		if sum.Total().Blocks != 11 || len(b.LandedBlocks()) != 11 {
			t.Errorf("%d blocks in the account and %d at the peer, want the 11 of that disk", sum.Total().Blocks, len(b.LandedBlocks()))
		}
		if f.Read[a.More[1]] == 0 || f.Read[a.Stores[0].Paths[1]] == 0 || f.Read[a.Stores[0].Paths[0]] != 0 {
			t.Errorf("told of %v fetched", f.Read)
		}
	})
}

func TestReaderDoesNotAskADiskThatDoesNotAnswer(t *testing.T) {
	a, f, _ := carrying(t)
	a.Reopen(t) // nobody but the reader has told the vault whom to ask
	for _, dir := range []string{a.More[1], a.Stores[0].Paths[1]} {
		f.Set(f.Bad, dir, true)
	}
	for id, want := range map[string]int{"cache/-/f-0": 200, "cache/-/f-1": 503, "other/-/v-0": 200, "other/-/v-1": 503} {
		if status, body, _ := a.Get(t, id, ""); status != want {
			t.Errorf("%s: status %d %s, want %d", id, status, body, want)
		}
	}
	if f.Read[a.More[0]] < 1000 {
		t.Errorf("told of %v fetched", f.Read)
	}
	// Nobody else has it: that says nothing of what is here.
	for _, at := range []reading.Location{{}, {Why: "a has it no more"}, {Lost: true}} {
		rd := a.Reader()
		rd.Fetch = &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) { return at, nil }}
		if status, body, h := get(t, rd, "cache/-/f-1", ""); status != 503 || h.Get("Retry-After") == "" {
			t.Errorf("nobody else has it (%+v): status %d %s, want 503", at, status, body)
		}
	}
}

// spreadOutputs writes twenty map outputs of an executor that has three disks, and returns how their files' names begin.
func spreadOutputs(t *testing.T, n *node) (bases []string) {
	t.Helper()
	var managers []string
	for i := range 3 {
		managers = append(managers, filepath.Join(n.Dir, fmt.Sprintf("s%d/blockmgr-%d", i, i)))
	}
	for i := range 20 {
		writeMapOutput(t, managers, 0, i, 100, 200)
		bases = append(bases, fmt.Sprintf("shuffle_0_%d_0", i))
	}
	return bases
}

// A map output with files on several disks, of which one does not answer, is lost by its name. The log does not name each.
func TestMapOutputOnADiskThatDoesNotAnswer(t *testing.T) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
	var names []string
	for _, base := range spreadOutputs(t, n) {
		index, _ := inventory.SparkPlace(base+".index", 3)
		data, _ := inventory.SparkPlace(base+".data", 3)
		if index != 1 && data == 1 {
			names = append(names, fmt.Sprintf("spark/blockmgr-%d/%s", index, base))
		}
	}
	if len(names) == 0 {
		t.Fatal("no map output is spread like that")
	}
	b := newNode(t, "b")
	synctest.Test(t, func(t *testing.T) {
		f.News = make(chan struct{})
		f.Set(f.Bad, n.Stores[0].Paths[1], true)
		var said bytes.Buffer
		tr := newTrip(t, n, b)
		tr.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		_, entries := tr.run(within(t, time.Minute))
		lost := outcome(t, entries, manifest.Lost)
		for _, id := range names {
			if !strings.Contains(lost[id].Reason, "does not answer") {
				t.Errorf("%s: %+v", id, lost[id])
			}
		}
		if lines := strings.Count(said.String(), "level=WARN"); lines > len(n.Stores[0].Paths) {
			t.Errorf("the log has %d warnings for one disk:\n%s", lines, said.String())
		}
	})
}

// A disk does not answer at the first look, and does at the second. Its files have not changed since, and parts of each map output are on
// disks that were read; but the first look met no whole map output, so all are sent.
func TestMapOutputOnADiskThatAnswersLaterIsCarried(t *testing.T) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
	ids := outputIDs(spreadOutputs(t, n))
	tr := newTrip(t, n, newNode(t, "b"))
	outlast(t) // the files are older than the drain
	silent := n.Stores[0].Paths[0]
	f.Set(f.Bad, silent, true)
	tr.cfg.Peers = after(400*time.Millisecond, tr.cfg.Peers) // till then there is no second look
	time.AfterFunc(200*time.Millisecond, func() { f.Set(f.Bad, silent, false) })
	sum, entries := tr.run(within(t, 20*time.Second))
	wantMoved(t, sum, entries, ids)
}

// thawing is Spark's layout with a disk that answers again as soon as a block is met on another disk.
type thawing struct {
	inventory.SparkLayout
	thaw func()
}

func (l thawing) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	return l.SparkLayout.Scan(ctx, s, part, before, func(it inventory.Item, err error) bool {
		if it.ID != "" {
			l.thaw()
		}
		return yield(it, err)
	})
}

// A disk did not answer when a look came to it, and answers before the look is over. The look did not read it, so the next one does.
func TestMapOutputOnADiskThatAnswersDuringALookIsCarried(t *testing.T) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
	ids := outputIDs(spreadOutputs(t, n))
	outlast(t)
	silent := n.Stores[0].Paths[0]
	f.Set(f.Bad, silent, true)
	n.Stores[0].Shape = thawing{thaw: sync.OnceFunc(func() { f.Set(f.Bad, silent, false) })}
	sum, entries := newTrip(t, n, newNode(t, "b")).run(within(t, 20*time.Second))
	wantMoved(t, sum, entries, ids)
}

// A block that was looked for while its disk did not answer is found as soon as it does.
func TestMapOutputIsFoundOnceItsDiskAnswers(t *testing.T) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
	ids, s := outputIDs(spreadOutputs(t, n)), n.Stores[0]
	s.Watch(f)
	f.Set(f.Bad, s.Paths[0], true)
	for _, id := range ids {
		if _, err := s.Find(inventory.BlockID(id)); err != nil && !diskio.IsSilent(err) {
			t.Errorf("find %s: got %v, want to hear of the disk", id, err)
		}
	}
	f.Set(f.Bad, s.Paths[0], false)
	for _, id := range ids {
		if _, err := s.Find(inventory.BlockID(id)); err != nil {
			t.Errorf("find %s: %v", id, err)
		}
	}
}

// outputIDs are the ids of what spreadOutputs wrote.
func outputIDs(bases []string) (ids []string) {
	for _, base := range bases {
		index, _ := inventory.SparkPlace(base+".index", 3)
		ids = append(ids, fmt.Sprintf("spark/blockmgr-%d/%s", index, base))
	}
	return ids
}

func wantMoved(t *testing.T, sum manifest.Summary, entries []manifest.Entry, ids []string) {
	t.Helper()
	moved := outcome(t, entries, manifest.Moved)
	for _, id := range ids {
		if _, ok := moved[id]; !ok {
			t.Errorf("%s was not moved", id)
		}
	}
	if sum.Moved.Blocks != int64(len(ids)) || sum.Lost.Blocks+sum.Skipped.Blocks != 0 {
		t.Errorf("got %+v, want %d moved", sum, len(ids))
	}
}
