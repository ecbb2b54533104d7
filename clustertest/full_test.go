package clustertest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks/smalldisk"
)

// A leaving node whose data_dir is full, and whose blocks no peer takes, still names each block that is lost.
func TestFullDataDirNamesWhatIsLost(t *testing.T) {
	for name, ballast := range map[string]bool{"with ballast": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			disk := smalldisk.New(t, 96<<20)
			there := func(i int, cfg *agent.Config) { cfg.DataDir = filepath.Join(disk, "data") }
			bubble(t, clustertest.Config{Agents: 1, Agent: there}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				strange := filepath.Join(c.Dir(0), "cache", "tab\there")
				if err := os.WriteFile(strange, []byte("data"), 0o600); err != nil {
					t.Fatal(err)
				}
				c.Sleep(time.Minute)
				kept, err := filepath.Glob(filepath.Join(disk, "data", "ballast-*"))
				if err != nil || len(kept) != 2 {
					t.Fatalf("got %v (%v), want two files of ballast", kept, err)
				}
				for _, b := range kept {
					if !ballast && os.Remove(b) != nil {
						t.Fatal("remove the ballast")
					}
				}
				smalldisk.Fill(t, disk)
				c.Notice(0, 30*time.Second)
				c.WaitDrained(0)
				if kept, _ := filepath.Glob(filepath.Join(disk, "data", "ballast-*")); len(kept) > 0 {
					t.Errorf("%v is still there", kept)
				}
				sum, entries := c.Manifest(0)
				for _, b := range blocks {
					if e := entries[b.ID]; e.GetOutcome() != "lost" || c.Locate(b.ID).State != "lost" {
						t.Errorf("%s: got %v, want it lost", b.ID, e)
					}
				}
				if e := entries[`cache/-/"tab\there"`]; e.GetOutcome() != "lost" || sum.Lost.Blocks != fillBlocks+1 {
					t.Errorf("got %v of %v, want it lost", e, sum.Lost)
				}
			})
		})
	}
}

// Blocks that it moved are found at its peers, and counted, although the node could not write them down.
func TestFullDataDirCountsWhatIsMoved(t *testing.T) {
	disk := smalldisk.New(t, 96<<20)
	there := func(i int, cfg *agent.Config) {
		if i == 0 {
			cfg.DataDir = filepath.Join(disk, "data")
		}
	}
	bubble(t, clustertest.Config{Agents: 2, Agent: there}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(time.Minute)
		for _, name := range []string{"ballast-journal", "ballast-account"} {
			if err := os.Remove(filepath.Join(disk, "data", name)); err != nil {
				t.Fatal(err)
			}
		}
		smalldisk.Fill(t, disk)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.VerifyEverywhere(1)
		said := ""
		for _, e := range c.Events(0) {
			if e.Type == "NodeDecommissioned" {
				said = e.Data["moved"] + " moved, " + e.Data["lost"] + " lost"
			}
		}
		if want := fmt.Sprintf("%d moved, 0 lost", fillBlocks); said != want {
			t.Errorf("the event says %q, want %q", said, want)
		}
	})
}
