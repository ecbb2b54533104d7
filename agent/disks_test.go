package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// stubDisks is a monitor whose disks the test sets.
type stubDisks struct {
	all     []disks.Disk
	taken   []string
	changed chan struct{}
	reserve int64
}

func (s *stubDisks) Run(context.Context) error                      { return nil }
func (s *stubDisks) Snapshot() []disks.Disk                         { return s.all }
func (s *stubDisks) Changed() <-chan struct{}                       { return s.changed }
func (s *stubDisks) Stuck() int                                     { return 3 }
func (s *stubDisks) Observe(string, disks.Op, int64, time.Duration) {}
func (s *stubDisks) Fault(string, error)                            {}
func (s *stubDisks) SetReserve(bytes int64)                         { s.reserve = bytes }
func (s *stubDisks) Take(_ int64, among []string) (string, func(int64), bool) {
	s.taken = among
	if len(among) == 0 {
		return "", func(int64) {}, false
	}
	return among[0], func(int64) {}, true
}

// onDisks is an agent of which only the disks exist.
func onDisks(t *testing.T, all ...disks.Disk) (*Agent, *stubDisks) {
	t.Helper()
	s := &stubDisks{all: all, changed: make(chan struct{})}
	e, err := openEvacuations(filepath.Join(t.TempDir(), "evacuations"), new(durable.Beside))
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{cfg: Default(), log: slog.New(slog.DiscardHandler), evacuations: e}
	a.limits.Store(limitsOf(a.cfg))
	a.disks.monitor, a.disks.closed = s, e.closed
	e.log, e.disks, e.limits = a.log, &a.disks, &a.limits
	return a, s
}

func TestWhichDisksAreUnwell(t *testing.T) {
	var bad []string
	for h := disks.Unknown; h <= disks.Missing; h++ {
		if unwell(h) {
			bad = append(bad, h.String())
		}
	}
	if got, want := strings.Join(bad, " "), "READ_ONLY READ_WRITE_FAILURE IO_HANG CRITICAL MISSING"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What is not known of a disk is left out: unknown is not zero, and not fast.
func TestDiskStatesTellTheUnknownApart(t *testing.T) {
	a, _ := onDisks(t,
		disks.Disk{Path: "/mnt/d0", Device: "0:0", Health: disks.Unknown},
		disks.Disk{Path: "/mnt/d1", Device: "8:17", Name: "sdb1", Health: disks.ReadOnly, Why: "mounted\nread-only " + strings.Repeat("ä", longestWhy), Since: time.Now(),
			TotalBytes: 100 << 20, Slots: 1, Inodes: 5, Flush: disks.Rate{BytesPerSecond: 7, From: "work"}},
	)
	all := a.disks.wire()
	if d := all[0]; d.Slots != nil || d.Inodes != nil || d.FlushBytesPerSecond != nil || d.FetchBytesPerSecond != nil || d.Since != nil || d.Device != "" || d.Unwell {
		t.Errorf("of an unknown disk: got %v", d)
	}
	if d := all[1]; d.GetSlots() != 1 || d.GetFreeSlots() != 0 || d.GetInodes() != 5 || d.GetFlushBytesPerSecond() != 7 || d.FetchBytesPerSecond != nil || d.Since == nil ||
		d.Device != "sdb1" || !d.Unwell || !strings.HasPrefix(d.Why, "mounted read-only ä") || len(d.Why) > longestWhy+len("...") {
		t.Errorf("of a known disk: got %v", d)
	}
}

// A link of the configuration may lead to a mount of any name. The coordinator takes the heartbeat that names it.
func TestMountOfAnyName(t *testing.T) {
	a, _ := onDisks(t, disks.Disk{Path: "/mnt/d0", Mount: "/media/a\u00a0b\tc\xff\x7f" + strings.Repeat("x", 5000), FS: "fuse." + strings.Repeat("y", 500)})
	d := a.disks.wire()[0]
	if !strings.HasPrefix(d.Mount, "/media/a b c? x") || len(d.Mount) > 4096 || len(d.Filesystem) > 128 {
		t.Errorf("got a mount of %d bytes, %.20q, and a type of %d", len(d.Mount), d.Mount, len(d.Filesystem))
	}
}

// Migration asks about files and directories below the watched directories.
func TestLandingFindsTheDisk(t *testing.T) {
	a, stub := onDisks(t,
		disks.Disk{Path: "/data", Health: disks.Healthy, UsableBytes: 5},
		disks.Disk{Path: "/data/deep", Device: "8:1", Health: disks.IOHang},
		disks.Disk{Path: "/mnt/d0", Device: "8:17", Whole: "sdb", Health: disks.HighUsage},
		disks.Disk{Path: "/mnt/d1", Device: "8:18", Whole: "sdb", Health: disks.Slow, UsableBytes: 9},
		disks.Disk{Path: "/mnt/d2", Health: disks.Unknown},
	)
	l := &a.disks
	if _, err := l.room("/mnt/d2/cache"); err == nil {
		t.Error("the room of a disk that nobody has looked at is known")
	}
	for path, want := range map[string]struct {
		room                      int64
		writable, keeps, readable bool
	}{
		"/data/vault": {5, true, true, true}, "/data": {5, true, true, true}, "/data/deep/x": {0, false, false, false}, "/mnt/d0/a/b": {0, false, true, true},
		"/mnt/d1": {9, true, true, true}, "/mnt/d10": {0, false, false, true}, "/elsewhere": {0, false, false, true},
	} {
		room, _ := l.room(path)
		if w, k, r := l.Writable(path), l.Keeps(path), l.Readable(path); room != want.room || w != want.writable || k != want.keeps || r != want.readable {
			t.Errorf("%s: got room %d, writable %t, keeps %t, readable %t, want %+v", path, room, w, k, r, want)
		}
	}
	for path, want := range map[string]string{"/data/deep/x": "8:1", "/mnt/d0": "sdb", "/mnt/d1/a": "sdb", "/elsewhere": ""} {
		if got := l.Disk(path); got != want {
			t.Errorf("%s: got disk %q, want %q", path, got, want)
		}
	}
	if path, _, ok := l.Take(1, []string{"/elsewhere", "/data/vault", "/mnt/d1"}); path != "/data/vault" || !ok || !slices.Equal(stub.taken, []string{"/data", "/mnt/d1"}) {
		t.Errorf("got %q %t of %v", path, ok, stub.taken)
	}
	if err := a.evacuations.ask("/data", byOperator, time.Now()); err != nil {
		t.Fatal(err)
	}
	if path, _, ok := l.Take(1, []string{"/data/vault", "/mnt/d1"}); path != "/mnt/d1" || !ok || l.Writable("/data/vault") {
		t.Errorf("what an operator empties took a block: got %q %t", path, ok)
	}
	if !l.Readable("/data/vault") {
		t.Error("what is emptied must be read")
	}
}

// A dying disk is evacuated once, and its evacuation dropped when the disk turns out well. An operator's order stands until
// an operator takes it back.
func TestDyingDisksAreEvacuated(t *testing.T) {
	a, stub := onDisks(t, disks.Disk{Path: "/mnt/d0", Health: disks.Critical}, disks.Disk{Path: "/mnt/d1", Health: disks.IOHang},
		disks.Disk{Path: "/mnt/d2", Health: disks.HighUsage}, disks.Disk{Path: "/mnt/d3", Health: disks.Healthy})
	asked := func() (paths []string) {
		a.evacuations.saveDying()
		for _, v := range a.evacuations.list() {
			paths = append(paths, v.Path+" by "+v.By)
		}
		return paths
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := asked(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	a.limits.Store(&limits{})
	expect("left to people")
	a.limits.Store(limitsOf(a.cfg))
	expect("one is dying", "/mnt/d0 by CRITICAL")
	first, _ := a.evacuations.of("/mnt/d0")
	if a.evacuations.closed("/mnt/d0") {
		t.Error("what its health closes its health must open")
	}
	expect("still", "/mnt/d0 by CRITICAL")
	if again, _ := a.evacuations.of("/mnt/d0"); again.ID != first.ID {
		t.Error("an evacuation that is under way began again")
	}
	stub.all[0].Health = disks.HighUsage
	expect("neither dying nor well", "/mnt/d0 by CRITICAL")
	stub.all[0].Health = disks.Healthy
	expect("well again")
	if err := a.evacuations.ask("/mnt/d3", byOperator, time.Now()); err != nil {
		t.Fatal(err)
	}
	expect("an operator's", "/mnt/d3 by operator")
}

// An operator has a well disk emptied, which may take an hour. A disk that dies meanwhile does not wait for that.
func TestDyingDiskComesFirst(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, _ := inRefuge(t, dir, disks.Healthy)
		e := a.evacuations
		e.incidents = &a.incidents
		ask := func(path, by string) {
			t.Helper()
			if err := e.ask(path, by, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		ask("/mnt/d0", byOperator)
		runs, _ := e.next(e.mayEmpty)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		overtaken := make(chan bool, 1)
		go func() { overtaken <- e.overtaken(ctx, runs, stop) }()
		ask("/mnt/d1", byOperator)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it was stopped for one that can wait")
		}
		ask("/mnt/d2", disks.Critical.String())
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it runs on while a disk is dying")
			stop()
		}
		if next, _ := e.next(e.mayEmpty); !<-overtaken || next.Path != "/mnt/d2" {
			t.Errorf("next is %+v", next)
		}
		if err := e.end(e.list()[2].ID, manifest.Summary{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if next, _ := e.next(e.mayEmpty); next.ID != runs.ID {
			t.Errorf("then it does not go on, but %+v", next)
		}
	})
}

// A restart forgets no evacuation that was ordered.
func TestEvacuationsOutliveTheProcess(t *testing.T) {
	a, _ := onDisks(t)
	e := a.evacuations
	for _, p := range []string{"/mnt/d0", "/mnt/d1", "/mnt/d0"} {
		if err := e.ask(p, byOperator, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.drop(func(v evacuation) bool { return v.Path == "/mnt/d1" }); err != nil {
		t.Fatal(err)
	}
	again, err := openEvacuations(e.dir, new(durable.Beside))
	if err != nil {
		t.Fatal(err)
	}
	all := func(evacuation) bool { return true }
	next, ok := again.next(all)
	if was, _ := e.next(all); !ok || next.ID != was.ID || next.Path != "/mnt/d0" || !again.closed("/mnt/d0") || again.closed("/mnt/d1") {
		t.Errorf("got %+v after a restart, want %+v", next, was)
	}
}

// What a dropped evacuation moved may still change here, so the newest of those accounts are kept, and all accounts that may
// go on.
func TestAccountsOfEvacuationsAreKept(t *testing.T) {
	a, _ := onDisks(t)
	e := a.evacuations
	ask := func(path string) (id string) {
		t.Helper()
		if err := e.ask(path, byOperator, time.Now()); err != nil {
			t.Fatal(err)
		}
		v, _ := e.of(path)
		if err := os.MkdirAll(e.accounts(v.ID), 0o700); err != nil {
			t.Fatal(err)
		}
		return e.accounts(v.ID)
	}
	goesOn := ask("/mnt/d0")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(goesOn, long, long); err != nil {
		t.Fatal(err)
	}
	var all []string
	for range keptEvacuations + 2 {
		all = append(all, ask("/mnt/d1"))
		if _, err := e.drop(func(v evacuation) bool { return v.Path == "/mnt/d1" }); err != nil {
			t.Fatal(err)
		}
	}
	want := append([]string{goesOn}, all[len(all)-keptEvacuations:]...)
	if got := e.moved(time.Time{}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := e.moved(time.Now().Add(time.Minute)); !slices.Equal(got, []string{goesOn}) {
		t.Errorf("once the others are over: got %v", got)
	}
	e.begin(filepath.Base(goesOn), nil)
	if got := e.over(time.Time{}); slices.Contains(got, goesOn) || len(got) != keptEvacuations {
		t.Errorf("got %v, want all but that of the one that runs", got)
	}
}

func TestMetricsTellOfDisks(t *testing.T) {
	cfg := settings(t)
	a := run(t, cfg)
	cache := cfg.Stores[0].Paths[0]
	within := time.NewTimer(time.Minute)
	defer within.Stop()
	for {
		changed := a.disks.Changed()
		if d, _ := on(cache, a.disks.monitor.Snapshot()); d.Health == disks.Healthy && d.TotalBytes > 0 {
			break
		}
		select {
		case <-changed:
		case <-within.C:
			t.Fatalf("got %+v", a.disks.monitor.Snapshot())
		}
	}
	page := httptest.NewRecorder()
	a.metrics().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`lifeboat_disk_health{path="` + cache + `",state="HEALTHY"} 1`, `lifeboat_disk_health{path="` + cache + `",state="IO_HANG"} 0`,
		`lifeboat_disk_total_bytes{path="` + cache + `"} `, `lifeboat_disk_free_bytes{path="` + cache + `"} `, `lifeboat_disk_usable_bytes{path="` + cache + `"} `,
		`lifeboat_disk_reserved_bytes{path="` + cache + `"} 0`, `lifeboat_disk_errors{path="` + cache + `"} 0`, "lifeboat_disk_probes_stuck 0",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("/metrics does not tell %s", want)
		}
	}
}

// What is taken back is shown as that, and not as it was.
func TestEvacuationTakenBackIsNotShownToRun(t *testing.T) {
	c := settings(t)
	a, err := New(t.Context(), c, deps(c))
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, cancel := range []bool{false, true} {
		got, err := (&local{agent: a}).EvacuateDisk(t.Context(), &api.EvacuateDiskRequest{Path: c.Stores[0].Paths[0], Cancel: cancel})
		if err != nil || len(got.GetEvacuations()) != 1 || (got.Evacuations[0].State == "cancelled") != cancel {
			t.Errorf("cancel %v: got %v, %v", cancel, got, err)
		}
	}
}
