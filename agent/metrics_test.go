package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// What a drain lost is told for as long as its incident is open, also by the agent after the one that drained.
func TestMetricsTellOfADrainBeforeARestart(t *testing.T) {
	a := run(t, settings(t))
	sum := migration.Summary{Moved: migration.Count{Blocks: 5, Bytes: 500}, Lost: migration.Count{Blocks: 3, Bytes: 300}}
	drained := func(_ preemption.Incident, p *page) { p.Work.Drained = &sum } // at once, or the agent that runs begins a drain
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
