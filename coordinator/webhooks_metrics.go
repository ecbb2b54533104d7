package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// hooksMetrics are the metrics of webhooks, by the names in the settings.
type hooksMetrics struct {
	failures     *prometheus.CounterVec
	last, behind *prometheus.GaugeVec
}

// hookMetrics are the metrics of one webhook.
type hookMetrics struct {
	failures     prometheus.Counter
	last, behind prometheus.Gauge
}

func newHooksMetrics(r promauto.Factory) hooksMetrics {
	labels := []string{"webhook"}
	return hooksMetrics{
		failures: r.NewCounterVec(prometheus.CounterOpts{
			Name: "lifeboat_webhook_failures_total", Help: "Tries to post events to a webhook that it did not take.",
		}, labels),
		last: r.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lifeboat_webhook_last_success_seconds", Help: "When a webhook last took events from this process, in seconds since 1970; 0: never.",
		}, labels),
		behind: r.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lifeboat_webhook_behind_events", Help: "Events that a webhook which fails has yet to be told of; 0: it does not fail, or this coordinator does not lead.",
		}, labels),
	}
}

// of are the metrics of a webhook. They exist from 0 on, or an alert on their rise would miss the first failure.
func (m hooksMetrics) of(name string) hookMetrics {
	return hookMetrics{m.failures.WithLabelValues(name), m.last.WithLabelValues(name), m.behind.WithLabelValues(name)}
}
