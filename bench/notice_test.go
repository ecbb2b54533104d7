package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
)

func TestParseSuites(t *testing.T) {
	o, err := parse(nil, io.Discard)
	want := []string{"transfer", "relay", "notices", "idle", "soak", "failover", "subscribers", "agents", "links", "value"}
	if os.Geteuid() != 0 {
		want = slices.DeleteFunc(want, func(name string) bool { return name == "links" }) // it makes network namespaces
	}
	if err != nil || !slices.Equal(o.suites, want) {
		t.Errorf("got suites %v (%v), want %v", o.suites, err, want)
	}
	o, err = parse([]string{"-suite", "soak,idle"}, io.Discard)
	if want := []string{"soak", "idle"}; err != nil || !slices.Equal(o.suites, want) {
		t.Errorf("got suites %v (%v), want %v", o.suites, err, want)
	}
	if _, err := parse([]string{"-suite", "idle,none"}, io.Discard); err == nil {
		t.Error("a suite that is none was taken")
	}
}

// The figures of one suite do not replace those that other suites recorded earlier.
func TestRecordKeepsOtherSuites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latest.json")
	for _, f := range []figure{alone("idle", "old", "s", 1, ""), alone("soak", "kept", "s", 2, ""), alone("idle", "new", "s", 3.00049, "go run ./bench")} {
		if err := record(file, f.Suite, []figure{f}); err != nil {
			t.Fatal(err)
		}
	}
	var got []figure
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	want := []figure{{Suite: "soak", Name: "kept", Value: 2, Unit: "s"}, {Suite: "idle", Name: "new", Value: 3, Unit: "s", Command: "go run ./bench"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if err := os.WriteFile(file, []byte("[{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := record(file, "idle", nil); err == nil {
		t.Error("a file that cannot be read was overwritten")
	}
}

func TestSpread(t *testing.T) {
	var took []time.Duration
	for i := range 200 { // 200 ms down to 1 ms
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	s := newSpread(took)
	for q, want := range map[float64]time.Duration{0: 1, 0.07: 14, 0.5: 100, 0.99: 198, 0.999: 200, 1: 200} {
		if got := s.quantile(q); got != want*time.Millisecond {
			t.Errorf("quantile %g: got %v, want %d ms", q, got, want)
		}
	}
	if got := s.mean(); got != 100500*time.Microsecond {
		t.Errorf("mean: got %v, want 100.5 ms", got)
	}
	if one := newSpread([]time.Duration{7}); one.quantile(0.5) != 7 || one.quantile(0.99) != 7 || one.mean() != 7 {
		t.Errorf("of one: got %v", one.stats())
	}
	if none := newSpread(nil); none.quantile(0.5) != 0 || none.mean() != 0 {
		t.Errorf("of none: got %v", none.stats())
	}
}

// There is a phase in every part of the second, and the phases are in no order.
func TestPhases(t *testing.T) {
	all := phases(200)
	if slices.IsSorted(all) {
		t.Error("the phases are in order")
	}
	for i, p := range newSpread(all) {
		if slot := int(p / (5 * time.Millisecond)); slot != i {
			t.Errorf("phase %d of 200 is %v, want it in the %dth 5 ms", i, p, i)
		}
	}
}

func TestTableOfDelays(t *testing.T) {
	target := map[string]time.Duration{"mean": 550 * time.Millisecond, "max": 1100 * time.Millisecond}
	delays := []delay{
		{"ec2, asked each second", newSpread([]time.Duration{100 * time.Millisecond, 1101 * time.Millisecond}), target},
		{"gce, once 3 s of 503 are over", newSpread(slices.Repeat([]time.Duration{100 * time.Second}, 1000)), target},
	}
	var b bytes.Buffer
	if err := printDelays(&b, "notice to durable DecommissionSelf", delays); err != nil {
		t.Fatal(err)
	}
	checkWidth(t, b.String())
	for _, want := range []string{"mean 550, max 1100", " 1101.0! ", "   600.5! "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	figures := delayFigures("notices", delays, "go run ./bench")
	if want := alone("notices", "ec2, asked each second, mean", "ms", 600.5, "go run ./bench"); len(figures) != 8 || figures[0] != want {
		t.Errorf("got %+v, want eight figures, the first %+v", figures, want)
	}
}

func checkWidth(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns, want at most 100: %s", n, line)
		}
	}
}

func TestParseEvents(t *testing.T) {
	header := func(mask uint32, length byte) []byte {
		return []byte{1, 0, 0, 0, byte(mask), byte(mask >> 8), byte(mask >> 16), byte(mask >> 24), 0, 0, 0, 0, length, 0, 0, 0}
	}
	text := slices.Concat(header(unix.IN_MOVED_TO, 16), []byte("incident.json\x00\x00\x00"), header(unix.IN_CLOSE_NOWRITE, 0))
	got, err := parseEvents(text)
	if want := []event{{unix.IN_MOVED_TO, "incident.json"}, {unix.IN_CLOSE_NOWRITE, ""}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	for _, bad := range [][]byte{text[:10], text[:20], header(unix.IN_Q_OVERFLOW, 0)} {
		if _, err := parseEvents(bad); err == nil {
			t.Errorf("%q: taken, want an error", bad)
		}
	}
}

// A journal counts as durable once its directory is synced, not when the file has its name.
func TestJournalWatch(t *testing.T) {
	dir := t.TempDir()
	w, err := watchJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	file, draft := filepath.Join(dir, journalName), filepath.Join(dir, ".new-1")

	if err := os.WriteFile(draft, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, file); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if at, err := w.durable(short); err == nil || short.Err() == nil {
		t.Errorf("a journal whose directory nobody synced is durable at %v (%v)", at, err)
	}

	began := time.Now()
	if err := durable.WriteFile(file, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if at, err := w.durable(t.Context()); err != nil || at.Before(began) {
		t.Errorf("durable at %v (%v), want after %v", at, err, began)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := w.gone(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := watchJournal(file); err == nil {
		t.Error("what is not there is watched")
	}
}

func TestReadPage(t *testing.T) {
	given := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	page := preemption.Page[struct{}]{Begun: true, Incident: preemption.Incident{ID: "inc-1", Notices: []preemption.Notice{
		{Source: "ec2", ID: "spot/instance-action", Kind: preemption.KindTerminate, SeenAt: given.Add(time.Millisecond)},
	}}}
	check := func(p preemption.Page[struct{}]) (time.Time, error) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return readPage(text, "ec2", preemption.KindTerminate, given)
	}
	if heard, err := check(page); err != nil || !heard.Equal(given.Add(time.Millisecond)) {
		t.Errorf("heard at %v (%v), want a millisecond after %v", heard, err, given)
	}
	for name, spoil := range map[string]func(p *preemption.Page[struct{}], n *preemption.Notice){
		"stays":     func(p *preemption.Page[struct{}], _ *preemption.Notice) { p.Begun = false },
		"withdrawn": func(_ *preemption.Page[struct{}], n *preemption.Notice) { n.Withdrawn = true },
		"source":    func(_ *preemption.Page[struct{}], n *preemption.Notice) { n.Source = "gce" },
		"kind":      func(_ *preemption.Page[struct{}], n *preemption.Notice) { n.Kind = preemption.KindStop },
		"too early": func(_ *preemption.Page[struct{}], n *preemption.Notice) { n.SeenAt = given.Add(-time.Millisecond) },
		"empty":     func(p *preemption.Page[struct{}], _ *preemption.Notice) { p.Incident.Notices = nil },
	} {
		bad := page
		bad.Incident.Notices = slices.Clone(page.Incident.Notices)
		spoil(&bad, &bad.Incident.Notices[0])
		if _, err := check(bad); err == nil {
			t.Errorf("%s: taken, want an error", name)
		}
	}
	if _, err := readPage([]byte("{"), "ec2", preemption.KindTerminate, given); err == nil {
		t.Error("half a page was taken")
	}
}

func TestQuestion(t *testing.T) {
	for _, row := range [][3]string{
		{http.MethodPut, "/latest/api/token", "PUT /latest/api/token"},
		{http.MethodGet, "/latest/meta-data/spot/instance-action", "spot/instance-action"},
		{http.MethodGet, "/computeMetadata/v1/instance/preempted?wait_for_change=true&last_etag=1", "preempted (hanging)"},
		{http.MethodGet, "/computeMetadata/v1/instance/preempted", "preempted"},
		{http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", "/metadata/scheduledevents"},
	} {
		u, err := url.Parse(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := question(&http.Request{Method: row[0], URL: u}); got != row[2] {
			t.Errorf("%s %s: got %q, want %q", row[0], row[1], got, row[2])
		}
	}
}

// Each pretend service gives a notice that its source reads, and withdraws it.
func TestPretenders(t *testing.T) {
	for _, provider := range preemption.Providers() {
		p, err := newPretender(provider)
		if err != nil {
			t.Fatal(err)
		}
		cloud, err := preemption.Settings{Provider: provider, Endpoint: p.url(), Poll: time.Millisecond}.Open(quiet(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.interrupt()
		next := listen(t, cloud)
		if n, err := next(); err != nil || n.Kind != p.kind || n.Withdrawn {
			t.Errorf("%s: got %+v (%v), want %s", provider, n, err, p.kind)
		}
		p.withdraw()
		if n, err := next(); err != nil || !n.Withdrawn {
			t.Errorf("%s: got %+v (%v), want it withdrawn", provider, n, err)
		}
		if len(p.counts()) == 0 {
			t.Errorf("%s: counted no question", provider)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

// listen returns a function that returns the next notice of a source, and waits at most a minute for it.
func listen(t *testing.T, cloud preemption.Cloud) func() (preemption.Notice, error) {
	ctx, stop := context.WithCancel(t.Context())
	w := preemption.NewWatcher(quiet(), cloud)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return func() (preemption.Notice, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return w.Next(ctx)
	}
}

func TestParseMemory(t *testing.T) {
	got, err := parseMemory("Name:\tlifeboat\nVmHWM:\t   24000 kB\nVmRSS:\t 23000 kB\nRssAnon:\t 5000 kB\nRssFile:\t 18000 kB\nRssShmem:\t 0 kB\n")
	if want := (memory{rss: 23000 << 10, anonymous: 5000 << 10, files: 18000 << 10, peak: 24000 << 10}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	for _, bad := range []string{"Name:\tzombie\n", "VmHWM: x kB\nVmRSS: 1 kB\nRssAnon: 1 kB\nRssFile: 1 kB\n"} {
		if _, err := parseMemory(bad); err == nil {
			t.Errorf("%q: taken, want an error", bad)
		}
	}
}

func TestTableOfIdlers(t *testing.T) {
	i := &idler{
		name: "agent, ec2", cpu: []float64{0.1, 0.7, 0.6}, over: 3 * time.Minute, asked: map[string]int{"a": 90, "b": 180, "never": 0},
		memory: memory{rss: 21 << 20, anonymous: 5 << 20, files: 16 << 20, peak: 22 << 20},
	}
	var b bytes.Buffer
	if err := printIdlers(&b, []*idler{i}, 26<<20); err != nil {
		t.Fatal(err)
	}
	checkWidth(t, b.String())
	for _, want := range []string{"idle, 3 times 60 s", "1.50", "0.60!", "21.0!", "26.0 MiB!", "1.000/s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "never") {
		t.Errorf("a question that was not asked is in:\n%s", b.String())
	}
	if got, want := i.rates(), []rate{{"b", 1}, {"a", 0.5}}; !slices.Equal(got, want) {
		t.Errorf("got rates %v, want %v", got, want)
	}
	figures := idleFigures([]*idler{i}, 26<<20, "")
	if want := alone("idle", "agent, ec2, requests for b", "1/s", 1, ""); !slices.Contains(figures, want) {
		t.Errorf("no %+v in %+v", want, figures)
	}
}

// A short soak counts its notices and incidents, and fails when the service fails.
func TestSoak(t *testing.T) {
	run := func(spoil func(*soak)) (*soak, int, error) {
		p, err := newPretender(preemption.SourceEC2)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		s := &soak{polls: 600, every: 60, fake: p}
		spoil(s)
		opened, err := s.run(t.Context(), t.TempDir())
		return s, opened, err
	}
	s, opened, err := run(func(*soak) {})
	if err != nil || opened != 10 || s.given != 10 || s.n != 600 {
		t.Errorf("got %d incidents of %d notices in %d polls (%v), want 10 in 600", opened, s.given, s.n, err)
	}
	if s.warm.heapBytes == 0 || s.end.descriptors == 0 {
		t.Errorf("footprints are %v and %v, want both taken", s.warm, s.end)
	}
	if _, _, err := run(func(s *soak) { s.fake.fail(http.StatusServiceUnavailable) }); err == nil {
		t.Error("a service that fails passed for one that works")
	}
}
