package coordinator

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// The list of ten thousand nodes with twenty disks each; the clients' bound on replies is made for its size.
func BenchmarkListNodes(b *testing.B) {
	cfg := Default()
	cfg.DataDir = b.TempDir()
	f := opened(b, cfg)
	st := &api.Status{RoomBytes: 1 << 40}
	for i := range 20 {
		at := fmt.Sprintf("/mnt/disks/ssd%d", i)
		st.Disks = append(st.Disks, &api.Disk{
			Path: at, Health: "HEALTHY", TotalBytes: 1 << 40, UsableBytes: 700 << 30, Since: durationpb.New(time.Hour),
			Mount: at, Device: fmt.Sprintf("nvme%dn1", i), Filesystem: "xfs", Kind: "ssd", FreeBytes: 710 << 30,
			Inodes: proto.Int64(1 << 26), InodesFree: proto.Int64(1 << 25), FlushBytesPerSecond: proto.Int64(900 << 20), FetchBytesPerSecond: proto.Int64(1500 << 20),
		})
	}
	now := time.Now()
	f.ledger.fsm.mu.Lock()
	for i := range 10_000 {
		name := fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i>>8, i&255)
		f.ledger.fsm.machine.Nodes[name] = registry.Node{Name: name, State: registry.Active, Facts: registry.Facts{Incarnation: "inc-0123456789ab", PeerAddress: "10.0.0.1:7412", Zone: "eu-central-1a", Pool: "m5d.4xlarge"}}
		f.leases.register(name, &api.RegisterRequest{Node: name, Sequence: 1, Status: st}, now)
	}
	f.ledger.fsm.mu.Unlock()
	b.Run("gRPC", func(b *testing.B) {
		for b.Loop() {
			reply, err := (&operator{fleet: f}).ListNodes(b.Context(), &api.ListNodesRequest{})
			if err != nil {
				b.Fatal(err)
			}
			body, err := proto.Marshal(reply)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(body))/(1<<20), "MiB/reply")
		}
	})
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/nodes", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			(&web{fleet: f}).listNodes(w, r)
			b.ReportMetric(float64(w.Body.Len())/(1<<20), "MiB/reply")
		}
	})
}
