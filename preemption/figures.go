package preemption

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/figures"
)

// Counters count what is heard of notices. Their labels have few values: sources, paths and kinds.
type Counters struct {
	polls     *prometheus.CounterVec
	pollTook  *prometheus.HistogramVec
	syncs     prometheus.Histogram
	Incidents *prometheus.CounterVec // by kind
	Ends      *prometheus.CounterVec // by why the machine stayed
}

// ShortTimes are histogram buckets for spans of milliseconds: 0.5 ms to 2 s.
func ShortTimes() []float64 { return prometheus.ExponentialBuckets(0.0005, 4, 7) }

// NewCounters begins to count.
func NewCounters(r prometheus.Registerer) Counters {
	f := promauto.With(r)
	return Counters{
		polls:     f.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_polls_total", Help: "Questions to the cloud's metadata service, by how they went."}, []string{"source", "path", "result"}),
		pollTook:  f.NewHistogramVec(prometheus.HistogramOpts{Name: "lifeboat_poll_seconds", Help: "How long the metadata service took to answer.", Buckets: ShortTimes()}, []string{"source"}),
		syncs:     f.NewHistogram(prometheus.HistogramOpts{Name: "lifeboat_journal_fsync_seconds", Help: "How long it took to make the incident durable.", Buckets: ShortTimes()}),
		Incidents: f.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_incidents_total", Help: "Incidents opened, by the kind of their first notice."}, []string{"kind"}),
		Ends:      f.NewCounterVec(prometheus.CounterOpts{Name: "lifeboat_cancelled_total", Help: "Incidents that ended while the machine stayed."}, []string{"why"}),
	}
}

// Polled counts a question.
func (c Counters) Polled(p Poll) {
	c.polls.WithLabelValues(p.Source, p.Path, p.Result).Inc()
	if p.Took > 0 { // a hanging GET has none: it lasts until there is news
		c.pollTook.WithLabelValues(p.Source).Observe(p.Took.Seconds())
	}
}

// Synced counts a page of the journal that was made durable.
func (c Counters) Synced(took time.Duration) { c.syncs.Observe(took.Seconds()) }

// Figures writes metrics of the notice that the node is under, if any, and of how well the sources are informed.
func Figures(to figures.To, n *api.Notice, sources []Health) {
	if n != nil {
		to.Gauge("lifeboat_notice", "1 while the node is under notice, by kind and source.", 1, "kind", n.Kind, "source", n.Source, "stance", n.Stance)
		if n.Remaining != nil {
			to.Gauge("lifeboat_deadline_remaining_seconds", "Time until the machine goes; absent where no deadline is known.", n.Remaining.AsDuration().Seconds())
		}
	}
	for _, h := range sources {
		if !h.LastGood.IsZero() {
			to.Gauge("lifeboat_last_good_poll_age_seconds", "Time since a source of notices last got a definite answer.", time.Since(h.LastGood).Seconds(), "source", h.Source, "path", h.Path)
		}
	}
}
