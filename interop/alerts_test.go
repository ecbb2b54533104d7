package interop_test

import "testing"

// Prometheus's own promtool plays what coordinators say over hours, and our alerts fire when they should and no longer.
func TestAlerts(t *testing.T) {
	says(t, tool(t, "promtool"), "test", "rules", "testdata/alerts.yaml")
}
