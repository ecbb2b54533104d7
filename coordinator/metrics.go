package coordinator

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the fleet in numbers for Prometheus. No label has one value per node: a large fleet would drown them.
type metrics struct {
	fleet    *fleet
	registry *prometheus.Registry
	beats    *prometheus.CounterVec
	events   *prometheus.CounterVec
	refused  prometheus.Counter
	silence  liveness
	hooks    hooksMetrics

	subscribers, gaps *prometheus.Desc

	nodes, located, lost, leader, term, silent, lastEvent, stale, begins, ends *prometheus.Desc
}

func newMetrics(f *fleet) *metrics {
	m := &metrics{
		fleet:    f,
		registry: prometheus.NewRegistry(),
		beats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_heartbeats_total",
			Help: "Heartbeats answered: of known nodes, of nodes told to register (unknown), or to register again (reattach).",
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_events_total",
			Help: "Changes of the fleet that this process decided, by type of event.",
		}, []string{"type"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lifeboat_coordinator_registrations_refused_total",
			Help: "Registrations of nodes that the host files keep out.",
		}),
		nodes:       prometheus.NewDesc("lifeboat_coordinator_nodes", "Nodes by state.", []string{"state"}, nil),
		located:     prometheus.NewDesc("lifeboat_coordinator_blocks_located", "Landed blocks whose holder is known.", nil, nil),
		lost:        prometheus.NewDesc("lifeboat_coordinator_blocks_lost", "Blocks that manifests name as lost, but for those of rehearsals.", nil, nil),
		leader:      prometheus.NewDesc("lifeboat_coordinator_leader", "1 when this coordinator can decide, else 0.", nil, nil),
		term:        prometheus.NewDesc("lifeboat_coordinator_term", "Term of the newest election: it rises with each.", nil, nil),
		silent:      prometheus.NewDesc("lifeboat_coordinator_silent", "Other coordinators that do not answer this one.", nil, nil),
		stale:       prometheus.NewDesc("lifeboat_coordinator_hosts_stale", "1 when the host files are not what is in force, refused or not applied, else 0.", nil, nil),
		subscribers: prometheus.NewDesc("lifeboat_coordinator_subscribers", "Who follows events of this coordinator.", nil, nil),
		gaps:        prometheus.NewDesc("lifeboat_coordinator_event_gaps_total", "Times that a subscriber was told to list the nodes anew.", nil, nil),
		begins:      prometheus.NewDesc("lifeboat_certificate_begins_seconds", "When this daemon's certificate began, in seconds since 1970.", nil, nil),
		ends:        prometheus.NewDesc("lifeboat_certificate_expires_seconds", "When this daemon's certificate ends, in seconds since 1970.", nil, nil),
		lastEvent:   prometheus.NewDesc("lifeboat_coordinator_last_event", "Index of the newest event.", nil, nil),
	}
	for _, t := range eventTypes {
		if t != evGap {
			m.events.WithLabelValues(t) // from 0 on, or an alert would miss the first
		}
	}
	m.silence = newLiveness(f)
	m.hooks = newHooksMetrics()
	m.registry.MustRegister(m.silence, m.silence.recovered, m.hooks.failures, m.hooks.last, m.hooks.behind, f.ledger.store.slow.took)
	m.registry.MustRegister(m, m.beats, m.events, m.refused, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) saw(e event) { m.events.WithLabelValues(e.Type).Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.nodes, m.located, m.lost, m.leader, m.term, m.silent, m.lastEvent, m.stale, m.begins, m.ends, m.subscribers, m.gaps} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c := m.fleet.count()
	for state, n := range c.nodes {
		gauge(m.nodes, float64(n), string(state))
	}
	gauge(m.located, float64(m.fleet.blocks.located()))
	gauge(m.lost, float64(c.lost))
	gauge(m.lastEvent, float64(c.lastEvent))
	gauge(m.subscribers, float64(m.fleet.audience.count()))
	to <- prometheus.MustNewConstMetric(m.gaps, prometheus.CounterValue, float64(m.fleet.audience.gaps.Load()))
	stale := 0.0
	if m.fleet.hostsTo().GetTrouble() != "" {
		stale = 1
	}
	gauge(m.stale, stale)
	gauge(m.begins, float64(m.fleet.identity.Begins().Unix()))
	gauge(m.ends, float64(m.fleet.identity.Expires().Unix()))
	leader := 0.0
	if m.fleet.ledger.leads() {
		leader = 1
	}
	gauge(m.leader, leader)
	gauge(m.term, float64(m.fleet.ledger.raft.CurrentTerm()))
	gauge(m.silent, float64(len(m.fleet.attendance.silent())))
}
