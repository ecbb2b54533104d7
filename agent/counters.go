package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lifeboat/lifeboat/preemption"
)

// counters count what happens, for /metrics: what the status of the moment cannot tell. Their labels are of few words.
type counters struct {
	polls     *prometheus.CounterVec
	pollTook  *prometheus.HistogramVec
	syncs     prometheus.Histogram
	incidents *prometheus.CounterVec
	ends      *prometheus.CounterVec
	toDisk    *prometheus.HistogramVec
	lead      *prometheus.HistogramVec
	removed   prometheus.Counter
	broken    prometheus.Counter
}

func newCounters() *counters {
	return &counters{
		polls:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_polls_total", Help: "Questions to the cloud's metadata service, by how they went."}, []string{"source", "path", "result"}),
		pollTook:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_poll_seconds", Help: "How long the metadata service took to answer.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 7)}, []string{"source"}),
		syncs:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lifeboat_journal_fsync_seconds", Help: "How long it took to make the incident durable.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 7)}),
		incidents: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_incidents_total", Help: "Incidents opened, by the kind of their first notice."}, []string{"kind"}),
		ends:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_cancelled_total", Help: "Incidents that ended while the machine stayed."}, []string{"why"}),
		toDisk:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_detect_to_emit_seconds", Help: "From a source's first sight of a notice until it was durable and acted on.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 7)}, []string{"source"}),
		lead:      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_notice_lead_seconds", Help: "Time that a notice left until its deadline when it was first seen.", Buckets: []float64{0, 5, 15, 30, 60, 120, 300, 900, 3600, 86400}}, []string{"kind"}),
		broken:    prometheus.NewCounter(prometheus.CounterOpts{Name: "lifeboat_broken_reads_total", Help: "Reads that met a block from another node whose bytes here are no longer what came."}),
		removed:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lifeboat_removed_blocks_total", Help: "Blocks from other nodes that were removed: kept for long enough, out of date, no longer there, or at an operator's word."}),
	}
}

// Describe and Collect make the counters one collector.
func (c *counters) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c *counters) Collect(ch chan<- prometheus.Metric) {
	for _, each := range []prometheus.Collector{c.polls, c.pollTook, c.syncs, c.incidents, c.ends, c.toDisk, c.lead, c.removed, c.broken} {
		each.Collect(ch)
	}
}

func (c *counters) polled(p preemption.Poll) {
	c.polls.WithLabelValues(p.Source, p.Path, p.Result).Inc()
	if p.Took > 0 { // a hanging question takes as long as there is nothing to say
		c.pollTook.WithLabelValues(p.Source).Observe(p.Took.Seconds())
	}
}

func (c *counters) synced(took time.Duration) { c.syncs.Observe(took.Seconds()) }

// joined counts a notice that made i of what the incident was before; of no notices: there was none.
func (c *counters) joined(was, i preemption.Incident, n preemption.Notice) {
	if len(was.Notices) == 0 {
		c.incidents.WithLabelValues(string(i.Kind())).Inc()
	}
	known := func(before preemption.Notice) bool { return before.Name() == n.Name() }
	if n.Withdrawn || slices.ContainsFunc(was.Notices, known) { // a newer word of what was seen before, perhaps by the process before
		return
	}
	c.toDisk.WithLabelValues(n.Source).Observe(time.Since(n.SeenAt).Seconds())
	if !n.Deadline.IsZero() {
		c.lead.WithLabelValues(string(n.Kind)).Observe(n.Deadline.Sub(n.SeenAt).Seconds())
	}
}

func (c *counters) ended(why error) {
	word := "withdrawn"
	if errors.Is(why, errOutlived) {
		word = "outlived"
	}
	c.ends.WithLabelValues(word).Inc()
}
