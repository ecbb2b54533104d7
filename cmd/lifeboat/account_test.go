package main

import (
	"fmt"
	"slices"
	"testing"
)

// While a node leaves, and after, the manifest of an earlier drain does not say where its blocks went this time.
func TestAnEarlierDrainsAccountIsNoneOfThisOne(t *testing.T) {
	const first, second = "lifeboat/-/manifest/host-a/inc-1", "lifeboat/-/manifest/host-a/inc-2"
	f := newFleet(t, true)
	f.put(t, "blocks.json", fmt.Sprintf(`{"blocks": [{"id": %q, "state": "held"}, {"id": %q, "state": "held"}]}`, first, second))
	to := reach{coordinator: f.coordinator, devInsecure: true}
	for _, c := range []struct {
		state, incident string
		want            []string
	}{
		{"ACTIVE", "", []string{first, second}},
		{"LOST", "inc-3", []string{first, second}},
		{"DECOMMISSIONING", "", nil},
		{"DECOMMISSIONING", "inc-3", nil},
		{"DECOMMISSIONED", "inc-3", nil},
		{"DECOMMISSIONED", "inc-2", []string{second}},
		{"DECOMMISSIONED", "", []string{first, second}}, // the coordinator does not remember
	} {
		f.put(t, "nodes.json", fmt.Sprintf(`{"nodes": [{"name": "host-a", "state": %q, "status": {"notice": {"incident": %q}}}]}`, c.state, c.incident))
		if got := to.accounts(t.Context(), "host-a"); !slices.Equal(got, c.want) {
			t.Errorf("%s under %q: got %q, want %q", c.state, c.incident, got, c.want)
		}
	}
	// The coordinators know the figures of the last drain, and a restored snapshot did not bring its entries along.
	f.put(t, "nodes.json", `{"nodes": [{"name": "host-a", "state": "ACTIVE", "manifest": {"incident": "inc-2"}}]}`)
	if got := to.accounts(t.Context(), "host-a"); !slices.Equal(got, []string{second}) {
		t.Errorf("the last of several drains: got %v, want the account of that one", got)
	}
	f.put(t, "nodes.json", `{}`)
	if got := to.accounts(t.Context(), "host-a"); len(got) != 2 {
		t.Errorf("forgotten: got %q, want all", got)
	}
}
