package clustertest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A node comes up without its store's disks. Operators are told, no reader is told that the blocks there are gone, and they are there when
// the disks are mounted again.
func TestStoreThatIsNotMountedIsMissing(t *testing.T) {
	var here, system syscall.Stat_t
	if err := syscall.Stat(t.TempDir(), &here); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Stat("/", &system); err != nil || here.Dev != system.Dev {
		t.Skipf("temporary directories are mounted by themselves: %v", err)
	}
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Partition(0, c.Name(2))
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Sleep(20 * time.Second) // small blocks become files by then
		c.Kill(0)
		c.Kill(1)
		dir := filepath.Join(c.Dir(1), "spark-0")
		swap := func(from, to string) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		swap(dir, dir+"-elsewhere")
		c.Restart(1)
		c.Sleep(5 * time.Minute)
		missing := 0
		for _, d := range c.Show(1).GetStatus().GetDisks() {
			if d.GetHealth() == "MISSING" && d.GetPath() == dir && strings.Contains(d.GetWhy(), "is not mounted") {
				missing++
			}
		}
		if missing != 1 {
			t.Errorf("it tells of %v, want %s missing", c.Show(1).GetStatus().GetDisks(), dir)
		}
		away := 0
		for _, b := range blocks {
			for id := range b.Members {
				switch status, _ := c.Read(2, id); status {
				case http.StatusServiceUnavailable:
					away++
				case http.StatusOK:
				default:
					t.Errorf("%s: got %d", id, status)
				}
			}
		}
		if away == 0 {
			t.Error("all that it holds is read")
		}
		c.Kill(1)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		swap(dir+"-elsewhere", dir)
		c.Restart(1)
		c.Sleep(5 * time.Minute)
		c.Verify(2, blocks...)
	})
}
