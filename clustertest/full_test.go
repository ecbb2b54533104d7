package clustertest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

// smallDisk is a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=96m"); err != nil {
		t.Skip("only root mounts file systems: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func fillDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 128<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A leaver whose data_dir is full, and that nobody takes anything from, still names each block that is lost with it.
func TestFullDataDirNamesWhatIsLost(t *testing.T) {
	for name, ballast := range map[string]bool{"with ballast": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			disk := smallDisk(t)
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
				fillDisk(t, disk)
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

// What it moved is where its peers say, and is counted, though it could not write any of that down.
func TestFullDataDirCountsWhatIsMoved(t *testing.T) {
	disk := smallDisk(t)
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
		fillDisk(t, disk)
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
