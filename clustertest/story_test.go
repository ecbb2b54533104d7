package clustertest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
)

// The words of the coordinator's events.
const (
	registered      = "NodeRegistered"
	announced       = "WorkerDecommission"
	ordered         = "NodeDecommissioning"
	decommissioned  = "NodeDecommissioned"
	recommissioned  = "NodeRecommissioned"
	deadlineChanged = "DecommissionChanged"
	shutdown        = "NodeShutdown"
	returned        = "NodeReturned"
	lost            = "NodeLost"
)

// bubble runs a story on simulated time. Stories share nothing, so they run in parallel.
func bubble(t *testing.T, cfg clustertest.Config, story func(t *testing.T, c *clustertest.Cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { story(t, clustertest.New(t, cfg)) })
}

// calm is for stories of many minutes, whose work is mostly that of machines at rest: the first node alone asks a cloud, so no other may get a
// notice, and nodes beat each five seconds. It is not for stories whose subject is the pace of heartbeats.
func calm(cfg clustertest.Config) clustertest.Config {
	agents := cfg.Agent
	cfg.Agent = func(i int, cfg *agent.Config) {
		if i > 0 {
			cfg.Cloud.Provider, cfg.Cloud.Endpoint = "none", ""
		}
		if agents != nil {
			agents(i, cfg)
		}
	}
	cfg.Coordinator = func(cfg *coordinator.Config) { cfg.Heartbeat = 5 * time.Second }
	return cfg
}

// A fill is what stories move: 30 blocks of 200 kB, a fourth of them map outputs. At slow it takes about 40 s to send, of
// which the first 600 kB go at once.
const (
	fillBlocks = 30
	fillSize   = 200_000
	fillBytes  = fillBlocks * fillSize
	slow       = 130_000
)

func fill(c *clustertest.Cluster, i int) (all []*clustertest.Block) {
	for n := range fillBlocks {
		if n%4 == 3 {
			all = append(all, c.Write(i, "spark", fmt.Sprintf("shuffle_%d_%d_0", i, n), fillSize))
		} else {
			all = append(all, c.Write(i, "cache", fmt.Sprintf("%s/part-%d", c.Name(i), n), fillSize))
		}
	}
	return all
}

// half waits for the middle of a drain and checks that it is one.
func half(t *testing.T, c *clustertest.Cluster, i int) {
	t.Helper()
	c.Until("half of the blocks are moved", time.Minute, func() bool { n, _ := c.Moved(i); return n >= fillBlocks/2 })
	if n, _ := c.Moved(i); n == fillBlocks {
		t.Fatal("the drain is over before its middle")
	}
}

// history checks what happened to a node, in order.
func history(t *testing.T, c *clustertest.Cluster, i int, want ...string) {
	t.Helper()
	var got []string
	for _, e := range c.Events(i) {
		got = append(got, e.Type)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got the events %s, want %s", c.Name(i), strings.Join(got, " "), strings.Join(want, " "))
	}
}

// nobodyLost checks that no lease ran out.
func nobodyLost(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		if n.State == "LOST" {
			t.Errorf("%s is LOST", n.Name)
		}
	}
	for i := range c.Nodes() {
		for _, e := range c.Events(i) {
			if e.Type == lost {
				t.Errorf("%s was lost at %s", e.Node, e.Time.AsTime())
			}
		}
	}
}

// accounted checks a manifest: every block is named once, its figures are those of its entries, and so many blocks were
// lost, each with a reason. It returns the entries by block.
func accounted(t *testing.T, c *clustertest.Cluster, i int, blocks []*clustertest.Block, lost int64) map[string]*api.ManifestEntry {
	t.Helper()
	summary, entries := c.Manifest(i)
	counts := map[string]*api.Count{"moved": {}, "lost": {}, "skipped": {}}
	for _, e := range entries {
		counts[e.Outcome].Blocks++
		counts[e.Outcome].Bytes += e.Bytes
		if e.Outcome == "moved" && (e.Peer == "" || e.Peer == c.Name(i)) {
			t.Errorf("%s is moved to %q", e.Id, e.Peer)
		}
		if e.Outcome == "lost" && e.Reason == "" {
			t.Errorf("%s is lost without a reason", e.Id)
		}
	}
	for outcome, said := range map[string]*api.Count{"moved": summary.GetMoved(), "lost": summary.GetLost(), "skipped": summary.GetSkipped()} {
		if got := counts[outcome]; got.Blocks != said.GetBlocks() || got.Bytes != said.GetBytes() {
			t.Errorf("manifest: %s: the summary says %v, the entries %v", outcome, said, got)
		}
	}
	for _, b := range blocks {
		if e := entries[b.ID]; e == nil || e.Bytes != b.Bytes {
			t.Errorf("manifest: %s of %d bytes is told as %v", b.ID, b.Bytes, e)
		}
	}
	accounts := 0 // manifests that nodes which left before put here, at random
	for id := range entries {
		if strings.HasPrefix(id, api.AccountStore+"/") {
			accounts++
		}
	}
	if len(entries)-accounts != len(blocks) || counts["lost"].Blocks != lost || counts["skipped"].Blocks != 0 {
		t.Errorf("manifest: got %d entries, %d lost, %d skipped; want %d, %d, 0", len(entries), counts["lost"].Blocks, counts["skipped"].Blocks, len(blocks), lost)
	}
	if summary.GetNode() != c.Name(i) || summary.GetFinishedAt().AsTime().Before(summary.GetStartedAt().AsTime()) {
		t.Errorf("manifest: got the summary %v", summary)
	}
	return entries
}

// peersOf returns the peers to which the moved blocks went.
func peersOf(entries map[string]*api.ManifestEntry) []string {
	at := map[string]bool{}
	for _, e := range entries {
		if e.Outcome == "moved" {
			at[e.Peer] = true
		}
	}
	return slices.Sorted(maps.Keys(at))
}

// Files whose names have characters that are not printable, such as the wide space of Japanese, are blocks like any other.
func TestNamesThatAreNotPrintable(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := []*clustertest.Block{
			c.Write(0, "cache", "報告\u30002026", 200_000), c.Write(0, "cache", "no\u00a0break", 200_000), c.Write(0, "cache", "👩\u200d🔬", 200_000),
		}
		blocks = append(blocks, fill(c, 0)...)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Sleep(10 * time.Second)
		c.VerifyEverywhere(1, 2)
	})
}
