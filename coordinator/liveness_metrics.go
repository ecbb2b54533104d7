package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// liveness is what Prometheus is told of silence and of clocks. A coordinator that does not lead knows nothing of them.
type liveness struct {
	fleet     *fleet
	recovered prometheus.Counter

	suspects, brakes, clock *prometheus.Desc
}

func newLiveness(f *fleet) liveness {
	return liveness{
		fleet: f,
		recovered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lifeboat_nodes_recovered_total",
			Help: "Suspects that were heard again before they were lost.",
		}),
		suspects: prometheus.NewDesc("lifeboat_nodes_suspect", "Nodes that have been silent for suspect_after and are not lost.", nil, nil),
		brakes:   prometheus.NewDesc("lifeboat_brake_active", "Brakes on mass loss that hold now: of the fleet, of pools, of zones.", []string{"scope"}, nil),
		clock:    prometheus.NewDesc("lifeboat_clock_ahead_seconds", "How far the clock of the node is off that is off the furthest, in either direction.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (l liveness) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.suspects, l.brakes, l.clock} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l liveness) Collect(to chan<- prometheus.Metric) {
	var suspects int
	var worst time.Duration
	held := map[string]int{"fleet": 0, "pool": 0, "zone": 0}
	if l.fleet.ledger.leads() {
		suspects, _, worst = l.fleet.leases.tally()
		for _, b := range l.fleet.brakesTo(time.Now()) {
			held[b.Scope]++
		}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(l.suspects, float64(suspects))
	gauge(l.clock, worst.Seconds())
	for scope, n := range held {
		gauge(l.brakes, float64(n), scope)
	}
}
