package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/workloads"
)

// mailbox is the receiver of a webhook.
type mailbox struct {
	mu     sync.Mutex // guards what follows
	answer int
	auth   string
	keys   []string
	events []api.EventJSON // of what was answered with 200
	tries  int
}

func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries++
	m.auth = r.Header.Get("Authorization")
	if m.answer != http.StatusOK {
		w.WriteHeader(m.answer)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var all []api.EventJSON
	if err := json.Unmarshal(body, &all); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	m.keys = append(m.keys, r.Header.Get("Idempotency-Key"))
	m.events = append(m.events, all...)
}

func (m *mailbox) set(answer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

func (m *mailbox) got() (types []string, tries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		types = append(types, e.Type)
	}
	return types, m.tries
}

// postTo gives a town a webhook.
func (v *town) postTo(m *mailbox, w Webhook) {
	pipe := pipenet.Listen()
	server := &http.Server{Handler: m}
	go server.Serve(pipe)
	transport := &http.Transport{DialContext: pipe.Dial}
	v.web = &http.Client{Transport: transport}
	v.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	w.Name, w.URL = "scheduler", "http://scheduler.test/events"
	v.cfg.Webhooks = []Webhook{w}
	v.restart()
}

func TestWebhookIsToldInOrderAndOnce(t *testing.T) {
	inTown(t, func(v *town) {
		token := filepath.Join(v.TempDir(), "token")
		if err := os.WriteFile(token, []byte("Bearer one\n"), 0o600); err != nil {
			v.Fatal(err)
		}
		a := v.agent("a")
		a.register() // before there was a webhook
		m := &mailbox{answer: http.StatusOK}
		v.postTo(m, Webhook{HeaderFiles: map[string]string{"Authorization": token}})
		want := func(types ...string) {
			v.Helper()
			synctest.Wait()
			if got, _ := m.got(); !slices.Equal(got, types) {
				v.Errorf("got %v, want %v", got, types)
			}
		}
		time.Sleep(time.Second)
		want()
		v.order(time.Hour, "a")
		want(registry.EventDecommissioning)
		if m.auth != "Bearer one" || len(m.keys) != 1 || m.keys[0] != "scheduler/3.2-3.2" {
			v.Errorf("got header %q and keys %v", m.auth, m.keys)
		}
		time.Sleep(2 * markPace) // now the log knows

		m.set(http.StatusServiceUnavailable)
		if err := os.WriteFile(token, []byte("Bearer two\n"), 0o600); err != nil {
			v.Fatal(err)
		}
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		a.live(10)
		_, tries := m.got()
		if tries < 4 || tries > 12 {
			v.Errorf("got %d tries in 10 s, want some, further and further apart", tries)
		}
		if m.auth != "Bearer two" {
			v.Errorf("got header %q: the file was not read again", m.auth)
		}
		want(registry.EventDecommissioning)
		v.restart()
		a.live(3)
		m.set(http.StatusOK)
		a.live(60)
		want(registry.EventDecommissioning, registry.EventRecommissioned)

		var before, after uint64
		v.order(time.Hour, "a")
		a.live(10)
		log := func() uint64 {
			s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
			if err != nil {
				v.Fatal(err)
			}
			return s.LastIndex
		}
		before = log()
		v.restart()
		a.live(10)
		if after = log(); after != before {
			v.Errorf("got %d events after a restart, want %d", after, before)
		}
		want(registry.EventDecommissioning, registry.EventRecommissioned, registry.EventDecommissioning)
	})
}

// A webhook that is down for an hour is in the log again and again, not at each try, and in the metrics until it takes events.
func TestWebhookThatIsDownIsHeardOf(t *testing.T) {
	inTown(t, func(v *town) {
		var text bytes.Buffer
		v.log = slog.New(slog.NewTextHandler(&text, nil))
		m := &mailbox{answer: http.StatusServiceUnavailable}
		v.postTo(m, Webhook{})
		a := v.agent("a")
		a.register()
		v.order(3*time.Hour, "a")
		a.live(3600)
		_, tries := m.got()
		_, page := v.get("/metrics", nil)
		for _, want := range []string{fmt.Sprintf("failures_total{webhook=\"scheduler\"} %d\n", tries), "behind_events{webhook=\"scheduler\"} 2\n", "last_success_seconds{webhook=\"scheduler\"} 0\n"} {
			if !strings.Contains(page, "lifeboat_webhook_"+want) {
				v.Errorf("the metrics do not have %q", want)
			}
		}
		m.set(http.StatusOK)
		a.live(60)
		if _, page := v.get("/metrics", nil); !strings.Contains(page, "lifeboat_webhook_behind_events{webhook=\"scheduler\"} 0\n") ||
			strings.Contains(page, "lifeboat_webhook_last_success_seconds{webhook=\"scheduler\"} 0\n") {
			v.Error("the metrics do not say that it takes events again")
		}
		v.stop()
		if n := strings.Count(text.String(), "still does not take events"); n != 5 {
			v.Errorf("got %d lines on it in an hour, want one each ten minutes", n)
		}
		if !strings.Contains(text.String(), "events=2 err=\"the answer is 503") || !strings.Contains(text.String(), "takes events again") {
			v.Error("the log does not say how many events wait, or that they are taken again")
		}
	})
}

// Types choose, and what is no longer kept is told as a gap.
func TestWebhookMeetsAGap(t *testing.T) {
	inTown(t, func(v *town) {
		m := &mailbox{answer: http.StatusOK}
		v.postTo(m, Webhook{Types: []string{registry.EventDecommissioning}})
		a := v.agent("a")
		a.register()
		v.order(time.Hour, "a")
		synctest.Wait()
		if got, _ := m.got(); !slices.Equal(got, []string{registry.EventDecommissioning}) {
			v.Errorf("got %v, want the one that it asked for", got)
		}

		s := newScroll(v.T)
		s.hub.enter(9)
		s.happen(9, 2*registry.KeptEvents)
		s.machine.Hooks = map[string]registry.Mark{"x": {Hook: "x", Place: api.Place{Term: 9, Index: 3}}}
		p := &poster{
			ledger: &ledger{fsm: s.replica}, name: "x", metrics: newHooksMetrics(promauto.With(prometheus.NewRegistry())).of("x"), want: filter{types: []string{registry.EventDecommissioning}},
			hook: workloads.Webhook{URL: "http://scheduler.test/events", Client: v.web},
		}
		ctx, cancel := context.WithCancel(v.Context())
		var serving sync.WaitGroup
		serving.Go(func() { p.serve(ctx) })
		synctest.Wait() // all is read, and the mark is not yet written
		cancel()
		serving.Wait()
		got, _ := m.got()
		if want := []string{registry.EventDecommissioning, evGap}; !slices.Equal(got, want) || m.events[1].Data["after"] != "9.3" {
			v.Errorf("got %v, want %v", got, want)
		}
	})
}

// In a fleet without events a new webhook's first mark cannot be written yet. It is written once it can be, and is not tried in a busy loop
// until then.
func TestFirstMarkIsWrittenOnceItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		p := &poster{log: f.log, ledger: f.ledger, do: f.do, name: "new"}
		p.begin()
		if p.due.IsZero() {
			t.Error("the mark was written, and nobody leads")
		}
		during(t, f.govern)
		time.Sleep(markPace + 5*time.Second)
		p.mark()
		if !p.due.IsZero() {
			t.Error("it can be written, and is due still")
		}
		f.ledger.view(func(m *registry.Registry) {
			if _, known := m.Hooks["new"]; !known {
				t.Error("the log does not know the webhook")
			}
		})
	})
}

func TestMarksAreBounded(t *testing.T) {
	m := registry.New()
	for i := range 3 * registry.KeptMarks {
		c := registry.Command{Do: registry.DoMark, Mark: &registry.Mark{Hook: fmt.Sprint("hook-", i), Place: api.Place{Term: 1, Index: uint64(i)}}}
		was := m.Hooks
		if m.Idle(c) {
			t.Fatal("a mark that moves is taken for nothing")
		}
		if events, err := m.Apply(c); err != nil || len(events) != 0 {
			t.Fatalf("got %v, %v", events, err)
		}
		if !m.Idle(c) {
			t.Fatal("the same mark again is written again")
		}
		if _, changed := was[c.Mark.Hook]; changed {
			t.Fatal("what a snapshot may be reading was changed")
		}
	}
	if got := len(m.Hooks); got != registry.KeptMarks {
		t.Errorf("got %d marks, want %d", got, registry.KeptMarks)
	}
	if _, ok := m.Hooks[fmt.Sprint("hook-", 3*registry.KeptMarks-1)]; !ok {
		t.Error("the newest mark was dropped")
	}
	if again, err := registry.Thaw([]byte(written(t, m.Freeze()))); err != nil || again.Hooks["hook-95"] != m.Hooks["hook-95"] {
		t.Errorf("got %v, %v after a snapshot", again.Hooks["hook-95"], err)
	}
}

func TestWebhookSettings(t *testing.T) {
	good := Webhook{Name: "scheduler", URL: "https://scheduler.test/events", Types: []string{registry.EventLost}}
	check := func(hooks ...Webhook) string {
		c := Config{Webhooks: hooks}
		var faults []string
		c.checkWebhooks(config.Report(func(key string, _ any, bound, remedy string) { faults = append(faults, key+": "+bound) }))
		return strings.Join(faults, "\n")
	}
	if got := check(good); got != "" {
		t.Errorf("got %s", got)
	}
	for want, hooks := range map[string][]Webhook{
		"webhooks[0].name: must be 1 to 64":              {{URL: good.URL}},
		"webhooks[1].name: must be another":              {good, good},
		"webhooks[0].url: must be a URL":                 {{Name: "a", URL: "scheduler"}},
		"webhooks[0].types: type":                        {{Name: "a", URL: good.URL, Types: []string{"\x1b"}}},
		"webhooks[0].header_files: must be the name":     {{Name: "a", URL: good.URL, HeaderFiles: map[string]string{"A B": "/f"}}},
		"webhooks[0].header_files.Auth: must name a fil": {{Name: "a", URL: good.URL, HeaderFiles: map[string]string{"Auth": ""}}},
		"webhooks: must be 16":                           make([]Webhook, 17),
	} {
		if got := check(hooks...); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
