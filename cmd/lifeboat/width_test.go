package main

import (
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// wantNarrow checks that nothing of an output is wider than a table may be.
func wantNarrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := columns(strings.TrimSuffix(line, "\n")); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestPeersThatADrainSendsToFit(t *testing.T) {
	long := "ip-10-20-30-40.eu-central-1.compute.internal"
	s := &api.AgentStatus{
		Node: "host-a", Coordinator: "10.0.0.1:7411",
		Status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", Peers: []*api.PeerProgress{
			{Node: long, Blocks: 123456, Bytes: 1 << 40, Trouble: "receipts from " + long + ": read tcp 10.20.30.1:41234->10.20.30.40:7412: connection reset by peer"},
			{Node: "host-c", Blocks: 1, Bytes: 1},
		}}},
		Peers: []*api.Peer{{Node: long, Address: "10.20.30.40:7412", Zone: "eu-central-1a", Pool: "r5.24xlarge-spot-production", RoomBytes: 1 << 40}},
	}
	var w strings.Builder
	if err := printAgent(&w, s); err != nil {
		t.Fatal(err)
	}
	wantNarrow(t, w.String())
	for _, want := range []string{"ip-10-20-30", "receipts from", "host-c"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

// The ids of Spark's blocks are long. They stay whole, since they are what people copy.
func TestManifestFits(t *testing.T) {
	id := "spark/blockmgr-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/shuffle_12_3456_0"
	var w strings.Builder
	p := manifestPrinter{w: &w, all: true}
	for _, e := range []*api.ManifestEntry{
		{Id: "cache/-/a", Bytes: 1 << 10, Outcome: "moved", Peer: "host-b"},
		{Id: id[:len(id)-5], Bytes: 1000 << 20, Outcome: "moved", Peer: "host-of-some-length"},
		{Id: id, Bytes: 1 << 40, Outcome: "moved", Peer: "host-of-some-length"},
		{Id: id, Bytes: 1 << 10, Outcome: "lost", Reason: "the deadline came first: " + strings.Repeat("it was tried ", 20)},
	} {
		if err := p.entry(e); err != nil {
			t.Fatal(err)
		}
	}
	wantNarrow(t, w.String())
	for _, want := range []string{id + "\n", "  the deadline came first", "host-of-s…", "host-b            cache/-/a\n"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}
