package sidecar

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// counters count what happens. Their labels are of few words: those of sources, kinds, and the configuration's actions.
type counters struct {
	polls     *prometheus.CounterVec
	pollTook  *prometheus.HistogramVec
	syncs     prometheus.Histogram
	incidents *prometheus.CounterVec
	ends      *prometheus.CounterVec
	actions   *prometheus.CounterVec
}

func newCounters() *counters {
	short := prometheus.ExponentialBuckets(0.0005, 4, 7) // 0.5 ms to 2 s
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &counters{
		polls: counter("lifeboat_polls_total", "Questions to the cloud's metadata service, by how they went.", "source", "path", "result"),
		pollTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lifeboat_poll_seconds", Help: "How long the metadata service took to answer.", Buckets: short}, []string{"source"}),
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lifeboat_journal_fsync_seconds", Help: "How long it took to make the incident durable.", Buckets: short}),
		incidents: counter("lifeboat_incidents_total", "Incidents opened, by the kind of their first notice.", "kind"),
		ends:      counter("lifeboat_cancelled_total", "Incidents that ended while the machine stayed.", "why"),
		actions:   counter("lifeboat_actions_total", "Words that actions were told, by what came of it.", "action", "phase", "result"),
	}
}

func (c *counters) polled(p preemption.Poll) {
	c.polls.WithLabelValues(p.Source, p.Path, p.Result).Inc()
	if p.Took > 0 { // a hanging question takes as long as there is nothing to say
		c.pollTook.WithLabelValues(p.Source).Observe(p.Took.Seconds())
	}
}

func (c *counters) synced(took time.Duration) { c.syncs.Observe(took.Seconds()) }

func (c *counters) told(action string, phase workloads.Phase, result string) {
	c.actions.WithLabelValues(action, string(phase), result).Inc()
}

// metrics serves the sidecar's figures. Those of the moment are read off its status when asked.
func (s *Sidecar) metrics() http.Handler {
	r := prometheus.NewRegistry()
	c := s.counts
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		c.polls, c.pollTook, c.syncs, c.incidents, c.ends, c.actions, figures{s},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lifeboat_build_info", Help: "1, with the version of this daemon.", ConstLabels: prometheus.Labels{"version": s.deps.Version}}, func() float64 { return 1 }))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

type figures struct{ sidecar *Sidecar }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	noticeDesc   = desc("lifeboat_notice", "1 while the node is under notice, by kind and source.", "kind", "source", "stance")
	deadlineDesc = desc("lifeboat_deadline_remaining_seconds", "Time until the machine goes; absent where no deadline is known.")
	pollDesc     = desc("lifeboat_last_good_poll_age_seconds", "Time since a source of notices last got a definite answer.", "source", "path")
)

// Describe and Collect make the figures of the moment a collector.
func (f figures) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, ch) }

func (f figures) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if n := f.sidecar.apiNotice(); n != nil {
		gauge(noticeDesc, 1, n.Kind, n.Source, n.Stance)
		if n.Remaining != nil {
			gauge(deadlineDesc, n.Remaining.AsDuration().Seconds())
		}
	}
	for _, h := range f.sidecar.notices.Health() {
		if !h.LastGood.IsZero() {
			gauge(pollDesc, time.Since(h.LastGood).Seconds(), h.Source, h.Path)
		}
	}
}
