package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	bolt "go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
)

// A coordinator whose disk is full as it takes over does not end: it leads once there is room.
func TestTakeOverWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&list, "host-%d.example\n", i)
		}
		cfg := Default()
		cfg.Name, cfg.DataDir, cfg.Peers = "c1", t.TempDir(), peersNamed(1)
		cfg.Hosts.Include = filepath.Join(t.TempDir(), "include")
		if err := os.WriteFile(cfg.Hosts.Include, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		id := certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: "c1"})
		f, err := openFleet(cfg, newStreams(id, cfg.Peers[0].Address, nowhere), Deps{Identity: id, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		limit := func(bytes int) {
			f.ledger.store.DB().Update(func(*bolt.Tx) error { // for its lock alone: nothing is committed
				f.ledger.store.DB().MaxSize = bytes
				return context.Canceled
			})
		}
		limit(1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.govern(ctx) }()
		time.Sleep(20 * time.Second)
		select {
		case err := <-ended:
			cancel()
			t.Fatalf("the coordinator ended while its disk was full: %v", err)
		default:
		}
		if _, err := f.ledger.lead(); err == nil {
			t.Error("it leads, and the lists are not in force")
		}
		limit(0)
		time.Sleep(5 * time.Second)
		if _, err := f.ledger.lead(); err != nil {
			t.Errorf("there is room again: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A coordinator that leads no more says nothing of what it knew as the leader: dashboards show the largest figure.
func TestWhoLeadsNoMoreHasLocatedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		during(t, f.govern)
		time.Sleep(5 * time.Second)
		landed := []blockmap.Word{{Key: blockmap.KeyOf("cache/-/x"), What: blockmap.Landed{Bytes: 7, From: unique.Make("a")}}}
		if _, err := f.locations.blocks.Hear("b", landed); err != nil {
			t.Fatal(err)
		}
		shown := func(want int64) {
			t.Helper()
			s, err := (&operator{fleet: f}).GetStatus(t.Context(), &api.GetStatusRequest{})
			w := httptest.NewRecorder()
			f.metrics.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if line := fmt.Sprintf("\nlifeboat_coordinator_blocks_located %d\n", want); err != nil || s.BlocksLocated != want || !strings.Contains(w.Body.String(), line) {
				t.Errorf("got %d located (%v), want %d, and %q among the metrics", s.GetBlocksLocated(), err, want, line)
			}
		}
		shown(1)
		f.ledger.raft.AddVoter("c4", "c4:7411", 0, 0) // which does not answer, and is half of the fleet
		time.Sleep(5 * time.Second)
		if f.ledger.leads() {
			t.Fatal("it leads still")
		}
		shown(0)
	})
}
