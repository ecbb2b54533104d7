package sidecar

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lifeboat/lifeboat/figures"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// counters count events. Their labels have few values: sources, kinds, and the configuration's actions.
type counters struct {
	registry *prometheus.Registry // of all that /metrics serves
	preemption.Counters
	actions *prometheus.CounterVec
}

func newCounters(version string) *counters {
	r := figures.New(version)
	return &counters{r, preemption.NewCounters(r), promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "lifeboat_actions_total", Help: "Words that actions were told, by what came of it.",
	}, []string{"action", "phase", "result"})}
}

func (c *counters) told(action string, phase workloads.Phase, result string) {
	c.actions.WithLabelValues(action, string(phase), result).Inc()
}

// metrics serves the sidecar's figures.
func (s *Sidecar) metrics() http.Handler {
	return promhttp.HandlerFor(s.counts.registry, promhttp.HandlerOpts{})
}

// figures are the metrics of the moment, from what the status shows.
func (s *Sidecar) figures(to figures.To) { preemption.Figures(to, s.apiNotice(), s.notices.Health()) }
