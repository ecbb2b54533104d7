package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// BenchmarkLocateUnknown measures the request for a block that no node has reported, in a fleet of 5,000.
func BenchmarkLocateUnknown(b *testing.B) {
	cfg := Default()
	cfg.Name, cfg.DataDir = "c", b.TempDir()
	f := opened(b, cfg)
	const nodes = 5000
	st := &api.Status{RoomBytes: 1, Stores: []*api.StoreInfo{{Name: "cache"}}}
	f.ledger.view(func(m *registry.Registry) {
		for i := range nodes {
			name := fmt.Sprintf("node-%04d", i)
			m.Nodes[name] = registry.Node{Name: name, ID: fmt.Sprint("node-", i), State: registry.Active, Facts: registry.Facts{PeerAddress: name + ":7412"}}
		}
	})
	for i := range nodes {
		f.leases.beat(fmt.Sprintf("node-%04d", i), st, time.Now())
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if r, err := f.locations.locate(&api.LocateRequest{Id: fmt.Sprint("cache/-/", n)}); err != nil || len(r.Candidates) != maxCandidates {
			b.Fatal(len(r.GetCandidates()), err)
		}
	}
}
