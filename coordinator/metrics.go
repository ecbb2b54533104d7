package coordinator

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/figures"
)

// metrics are the fleet in numbers for Prometheus. No label has a value for each node: with a large fleet there would be too many series.
type metrics struct {
	registry  *prometheus.Registry
	beats     *prometheus.CounterVec
	events    *prometheus.CounterVec
	refused   prometheus.Counter
	recovered prometheus.Counter
	hooks     hooksMetrics
}

func newMetrics(f *fleet) *metrics {
	r := figures.New(f.version)
	counts := promauto.With(r)
	m := &metrics{
		registry: r,
		beats: counts.NewCounterVec(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_heartbeats_total",
			Help: "Heartbeats answered: of known nodes, of nodes told to register (unknown), or to register again (reattach).",
		}, []string{"result"}),
		events: counts.NewCounterVec(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_events_total",
			Help: "Changes of the fleet that this process decided, by type of event.",
		}, []string{"type"}),
		refused: counts.NewCounter(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_registrations_refused_total",
			Help: "Registrations of nodes that the host files keep out.",
		}),
		recovered: counts.NewCounter(prometheus.CounterOpts{
			Name: "lifeboat_nodes_recovered_total",
			Help: "Suspects that were heard again before they were lost.",
		}),
		hooks: newHooksMetrics(counts),
	}
	for _, t := range eventTypes {
		if t != evGap {
			m.events.WithLabelValues(t) // counters start at 0, or an alert on their rise would miss the first event
		}
	}
	r.MustRegister(f.ledger.store.Took(), figures.Now(f.figures))
	return m
}

func (m *metrics) saw(e registry.Event) { m.events.WithLabelValues(e.Type).Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// figures are the metrics that are computed when Prometheus asks.
func (f *fleet) figures(to figures.To) {
	c := f.ledger.count()
	for state, n := range c.nodes {
		to.Gauge("lifeboat_coordinator_nodes", "Nodes by state.", float64(n), "state", string(state))
	}
	to.Gauge("lifeboat_coordinator_blocks_located", "Landed blocks whose holder is known.", float64(f.locations.located()))
	to.Gauge("lifeboat_coordinator_blocks_lost", "Blocks that manifests name as lost, but for those of rehearsals.", float64(c.lost))
	to.Gauge("lifeboat_coordinator_last_event", "Index of the newest event.", float64(c.lastEvent))
	to.Gauge("lifeboat_coordinator_subscribers", "Who follows events of this coordinator.", float64(f.audience.count()))
	to.Counter("lifeboat_coordinator_event_gaps_total", "Times that a subscriber was told to list the nodes anew.", float64(f.audience.gaps.Load()))
	to.Gauge("lifeboat_coordinator_hosts_stale", "1 when the host files are not what is in force, refused or not applied, else 0.", figures.Bool(f.hosts.shown().GetTrouble() != ""))
	to.Certificate(f.access.identity)
	leads := f.ledger.leads()
	to.Gauge("lifeboat_coordinator_leader", "1 when this coordinator can decide, else 0.", figures.Bool(leads))
	to.Gauge("lifeboat_coordinator_term", "Term of the newest election: it rises with each.", float64(f.ledger.raft.CurrentTerm()))
	to.Gauge("lifeboat_coordinator_silent", "Other coordinators that do not answer this one.", float64(len(f.succession.attendance.silent())))

	// A coordinator that does not lead hears no heartbeats: it knows nothing of suspects and clocks.
	var suspects int
	var worst time.Duration
	held := map[string]int{"fleet": 0, "pool": 0, "zone": 0}
	if leads {
		suspects, _, worst = f.leases.tally()
		for _, b := range f.silence.brakes(time.Now()) {
			held[b.Scope]++
		}
	}
	to.Gauge("lifeboat_nodes_suspect", "Nodes that have been silent for suspect_after and are not lost.", float64(suspects))
	to.Gauge("lifeboat_clock_ahead_seconds", "How far the clock of the node is off that is off the furthest, in either direction.", worst.Seconds())
	for scope, n := range held {
		to.Gauge("lifeboat_brake_active", "Brakes on mass loss that hold now: of the fleet, of pools, of zones.", float64(n), "scope", scope)
	}
}
