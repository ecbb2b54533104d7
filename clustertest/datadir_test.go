package clustertest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
)

// The disk of data_dir hangs from the copying ahead until after the drain: no copied block is carried twice, the manifest has all blocks,
// and nothing is written to that disk until it answers. Then the incident and the manifest are written there, and blocks written since are
// carried in another pass, which adds to the manifest.
func TestDataDirHangsFromTheAdviceOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) { cfg.Drain.PreCopyBytesPerSecond = 64 << 10 }})
		const blocks = 40
		for i := range blocks {
			c.Write(0, "cache", fmt.Sprint("part-", i), 64<<10)
		}
		lines := func() int {
			files, _ := filepath.Glob(filepath.Join(c.Dir(0), "data", "incidents", "*", "moved.jsonl"))
			n := 0
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				n += strings.Count(string(text), "\n")
			}
			return n
		}
		c.Rebalance(0)
		c.Until("some are copied ahead", time.Minute, func() bool { n, _ := c.Moved(0); return n >= 5 })
		c.SetDisk(0, "data", disks.IOHang)
		c.Sleep(5 * time.Second)
		was := lines()
		c.Notice(0, 2*time.Minute)
		c.Until("it is gone", 2*time.Minute, func() bool { return c.Show(0).GetState() == "DECOMMISSIONED" })
		moved := func(want int) {
			t.Helper()
			sum, entries := c.Manifest(0)
			n := 0
			for _, e := range entries {
				if e.GetOutcome() == "moved" {
					n++
				}
			}
			if n != want || sum.GetMoved().GetBlocks() != int64(want) || sum.GetLost().GetBlocks() > 0 {
				t.Errorf("got %v, and %d named, want %d moved", sum, n, want)
			}
		}
		moved(blocks)
		c.VerifyEverywhere(1, 2)
		if got := lines(); got != was || was == 0 || was == blocks {
			t.Errorf("the account on the disk that hangs has %d lines, had %d", got, was)
		}
		c.Write(0, "cache", "late", 64<<10)
		c.Until("what was written since is carried", time.Minute, func() bool { n, _ := c.Moved(0); return n == blocks+1 })
		c.SetDisk(0, "data", disks.Healthy)
		c.Until("the account is on disk", 10*time.Second, func() bool { return lines() == blocks+1 })
		c.Kill(0)
		c.Restart(0)
		c.Sleep(5 * time.Second)
		moved(blocks + 1)
		if n := c.Status(0).GetManifest().GetMoved().GetBlocks(); n != blocks+1 {
			t.Errorf("after a restart it says that %d were moved", n)
		}
	})
}

// The disk of data_dir hangs while blocks are carried that were written after the drain, and the account cannot be moved into memory. They
// are carried once that disk answers: nothing else reminds the node of them.
func TestPassThatWasLeftBehindIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) { cfg.Drain.MaxBytesPerSecond = 64 << 10 }})
		c.Write(0, "cache", "early", 64<<10)
		c.Decommission(0, 0, "")
		c.Until("it has left", time.Minute, func() bool { return c.Show(0).GetState() == "DECOMMISSIONED" })
		c.Write(0, "cache", "late", 1<<20)
		c.Sleep(8 * time.Second) // the node has looked, and sends
		ledgers, err := filepath.Glob(filepath.Join(c.Dir(0), "data", "incidents", "*", "moved.jsonl"))
		if err != nil || len(ledgers) != 1 {
			t.Fatalf("%v, %v", ledgers, err)
		}
		c.SetDisk(0, "data", disks.IOHang)
		if err := errors.Join(os.Rename(ledgers[0], ledgers[0]+".aside"), os.Mkdir(ledgers[0], 0o700)); err != nil { // cannot be copied
			t.Fatal(err)
		}
		c.Sleep(2 * time.Minute)
		if n, _ := c.Moved(0); n != 1 {
			t.Fatalf("%d blocks were moved while the disk hung", n)
		}
		if err := errors.Join(os.Remove(ledgers[0]), os.Rename(ledgers[0]+".aside", ledgers[0])); err != nil {
			t.Fatal(err)
		}
		c.SetDisk(0, "data", disks.Healthy)
		c.Until("the rest is carried", time.Minute, func() bool {
			sum, _ := c.Manifest(0)
			return sum.GetMoved().GetBlocks() == 2 && sum.GetLost().GetBlocks() == 0
		})
		c.VerifyEverywhere(1, 2)
	})
}
