package preemption

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A hanging GET says nothing about how fast the service answers.
func TestHangingQuestionsAreNotTimed(t *testing.T) {
	c := NewCounters(prometheus.NewRegistry())
	c.Polled(Poll{Source: "gce", Path: "preempted", Result: "ok"})
	c.Polled(Poll{Source: "gce", Path: "preempted", Result: "ok", Took: time.Millisecond})
	r := prometheus.NewRegistry()
	r.MustRegister(c.pollTook)
	got, err := r.Gather()
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if n := got[0].GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("%d answers were timed, want the 1 that was not waited for", n)
	}
}
