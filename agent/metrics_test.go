package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

// The metrics show what a drain lost for as long as its incident is open, even in the process after the one that drained.
func TestMetricsTellOfADrainBeforeARestart(t *testing.T) {
	a := run(t, settings(t))
	sum := manifest.Summary{Moved: inventory.Count{Blocks: 5, Bytes: 500}, Lost: inventory.Count{Blocks: 3, Bytes: 300}}
	drained := func(_ preemption.Incident, p *page) { p.Work.Drained = &sum } // in the same write, or the running agent begins a drain
	if _, _, err := a.incidents.Join(preemption.Notice{Source: preemption.SourceEC2, ID: "x", Kind: preemption.KindTerminate}, drained); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewRecorder()
	a.metrics().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`lifeboat_drain_blocks{outcome="lost"} 3`, `lifeboat_drain_bytes{outcome="lost"} 300`, `lifeboat_drain_bytes{outcome="moved"} 500`, `lifeboat_build_info{version=`} {
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("/metrics does not tell %s", want)
		}
	}
}

// The time that a notice left is counted when the notice is first seen, and not when its source gives it again with another
// deadline, as it does to a new process.
func TestNoticeIsCountedWhenItIsFirstSeen(t *testing.T) {
	now := time.Now()
	n := preemption.Notice{Source: preemption.SourceEC2, ID: "x", Kind: preemption.KindTerminate, SeenAt: now, Deadline: now.Add(2 * time.Minute)}
	i, c := preemption.Open(n), newCounters("v1")
	c.joined(preemption.Incident{}, i, n)
	was := i
	n.SeenAt, n.Deadline = now.Add(100*time.Second), now.Add(110*time.Second)
	if !i.Join(n) {
		t.Fatal("the notice says nothing new")
	}
	c.joined(was, i, n)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`lifeboat_notice_lead_seconds_count{kind="terminate"} 1`, `lifeboat_notice_lead_seconds_sum{kind="terminate"} 120`, `lifeboat_detect_to_emit_seconds_count{source="ec2"} 1`} {
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("/metrics does not tell %s", want)
		}
	}
}
