// Package figures is how the daemons tell Prometheus of themselves: what each of them has in common, and a way to read a figure off
// the daemon in the moment in which it is asked for, named where it is read.
package figures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// New is what every daemon tells of itself. What it counts besides is registered there.
func New(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), Now(func(to To) {
		to.Gauge("lifeboat_build_info", "1, with the version of this daemon.", 1, "version", version)
	}))
	return r
}

// Now tells the figures of the moment: it is called whenever somebody asks.
type Now func(To)

// Describe promises nothing: which figures there are depends on the moment, too.
func (Now) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (n Now) Collect(to chan<- prometheus.Metric) { n(to) }

// To is where figures are told. Labels are names, each with its value behind it.
type To chan<- prometheus.Metric

// Gauge tells one that may rise and fall.
func (to To) Gauge(name, help string, v float64, labels ...string) {
	to.tell(prometheus.GaugeValue, name, help, v, labels)
}

// Counter tells one that only rises.
func (to To) Counter(name, help string, v float64, labels ...string) {
	to.tell(prometheus.CounterValue, name, help, v, labels)
}

func (to To) tell(as prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), as, v, values...)
}

// Certificate tells from when to when a daemon's is good.
func (to To) Certificate(id interface {
	Begins() time.Time
	Expires() time.Time
}) {
	to.Gauge("lifeboat_certificate_begins_seconds", "When this daemon's certificate began, in seconds since 1970.", float64(id.Begins().Unix()))
	to.Gauge("lifeboat_certificate_expires_seconds", "When this daemon's certificate ends, in seconds since 1970.", float64(id.Expires().Unix()))
}

// Bool is 1 for what is so.
func Bool(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
