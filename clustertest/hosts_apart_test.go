package clustertest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
)

// The settings of three coordinators differ: one names no host files. While it leads it lets no excluded node back in, and it says what is
// wrong with its settings.
func TestLeaderWithoutHostFilesLetsNobodyIn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "exclude")
	if err := os.WriteFile(out, []byte("host-b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bubble(t, clustertest.Config{Coordinators: 3, Agents: 1, Coordinator: func(cfg *coordinator.Config) {
		if cfg.Name != clustertest.CoordinatorName(2) {
			cfg.Hosts.Exclude = out
		}
	}}, func(t *testing.T, c *clustertest.Cluster) {
		lead := func(i int) {
			t.Helper()
			if c.Leader() != i {
				c.HandOver(i)
			}
			c.Until("it leads", 10*time.Second, func() bool { return c.Leader() == i })
			c.Sleep(2 * time.Second)
		}
		in := func() (excluded int64, trouble string) {
			h := c.CoordinatorStatus(c.Leader()).GetHosts()
			return h.GetExcluded(), h.GetTrouble()
		}
		lead(0)
		if n, trouble := in(); n != 1 || trouble != "" {
			t.Fatalf("%d are excluded, trouble %q", n, trouble)
		}
		lead(2)
		if n, trouble := in(); n != 1 || !strings.Contains(trouble, out) || !strings.Contains(trouble, "name no host files") {
			t.Errorf("one leads that has no host files: %d are excluded, trouble %q", n, trouble)
		}
		refresh := func() error {
			_, err := c.Operator(c.Leader()).RefreshNodes(t.Context(), &api.RefreshNodesRequest{Graceful: true})
			return err
		}
		if err := refresh(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "name no host files") {
			t.Errorf("a refresh by one that has none: got %v", err)
		}
		lead(1)
		if n, trouble := in(); n != 1 || trouble != "" {
			t.Errorf("another leads: %d are excluded, trouble %q", n, trouble)
		}
		if err := os.WriteFile(out, []byte("# nobody\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		lead(0)
		if _, trouble := in(); !strings.Contains(trouble, "have changed") {
			t.Errorf("the file has changed: trouble %q", trouble)
		}
		lead(1)
		if err := refresh(); err != nil {
			t.Error(err)
		}
		lead(0)
		if _, trouble := in(); trouble != "" {
			t.Errorf("another has read the file since: trouble %q", trouble)
		}
		lead(2)
		if h := c.CoordinatorStatus(2).GetHosts(); h != nil {
			t.Errorf("the lists keep nobody out, and stay: %v", h)
		}
	})
}
