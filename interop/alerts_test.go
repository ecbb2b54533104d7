package interop_test

import "testing"

// Prometheus's promtool plays the metrics of hours, and our alerts fire when they should, and only then.
func TestAlerts(t *testing.T) {
	says(t, tool(t, "promtool"), "test", "rules", "testdata/alerts.yaml")
}
