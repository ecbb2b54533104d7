package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lifeboat/lifeboat/figures"
	"github.com/lifeboat/lifeboat/preemption"
)

// counters count events, which the status of the moment cannot tell. Their labels have few values.
type counters struct {
	registry *prometheus.Registry // of all that /metrics serves
	preemption.Counters
	toDisk  *prometheus.HistogramVec
	lead    *prometheus.HistogramVec
	removed prometheus.Counter
	broken  prometheus.Counter
}

func newCounters(version string) *counters {
	r := figures.New(version)
	f := promauto.With(r)
	return &counters{
		registry: r, Counters: preemption.NewCounters(r),
		toDisk:  f.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_detect_to_emit_seconds", Help: "From a source's first sight of a notice until it was durable and acted on.", Buckets: preemption.ShortTimes()}, []string{"source"}),
		lead:    f.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_notice_lead_seconds", Help: "Time that a notice left until its deadline when it was first seen.", Buckets: []float64{0, 5, 15, 30, 60, 120, 300, 900, 3600, 86400}}, []string{"kind"}),
		broken:  f.NewCounter(prometheus.CounterOpts{Name: "lifeboat_broken_reads_total", Help: "Reads that met a block from another node whose bytes here are no longer what came."}),
		removed: f.NewCounter(prometheus.CounterOpts{Name: "lifeboat_removed_blocks_total", Help: "Blocks from other nodes that were removed: kept for long enough, out of date, no longer there, or at an operator's word."}),
	}
}

// joined counts a notice that turned incident was into i. If was has no notices, this one opened the incident.
func (c *counters) joined(was, i preemption.Incident, n preemption.Notice) {
	if len(was.Notices) == 0 {
		c.Incidents.WithLabelValues(string(i.Kind())).Inc()
	}
	known := func(before preemption.Notice) bool { return before.Name() == n.Name() }
	if n.Withdrawn || slices.ContainsFunc(was.Notices, known) { // an update of a notice that was counted before, perhaps by the process before
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
	c.Ends.WithLabelValues(word).Inc()
}
