package clustertest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// Any agent says in one answer where many files are: those of map outputs that landed at other nodes, and one of its own.
func TestAnyAgentTellsWhereManyFilesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 4})
		var ids []string
		for n := range 20 {
			b := c.Write(0, "spark", fmt.Sprintf("shuffle_1_%d_0", n), 1<<10)
			ids = append(ids, b.ID+".index")
		}
		own := c.Write(3, "spark", "shuffle_2_1_0", 1<<10).ID + ".index"
		c.Notice(0, time.Minute)
		c.WaitDrained(0)
		c.Sleep(30 * time.Second) // small blocks land in segments, and become files later
		never := strings.Replace(own, "shuffle_2_1", "shuffle_9_9", 1)
		status, body := c.Ask(3, http.MethodPost, "", strings.Join(append(ids, own, never), "\n"))
		lines := strings.Split(strings.TrimSpace(string(body)), "\n")
		if status != http.StatusOK || len(lines) != len(ids)+1 {
			t.Fatalf("got %d, %s, want a line for each of %d", status, body, len(ids)+1)
		}
		for _, id := range append(ids, own) {
			ends := `,"landed":"place"}`
			if id == own {
				ends = fmt.Sprintf(`,"node":%q}`, c.Name(3))
			}
			if !slices.ContainsFunc(lines, func(l string) bool {
				return strings.HasPrefix(l, fmt.Sprintf(`{"id":%q,"node":"`, id)) && strings.HasSuffix(l, ends)
			}) {
				t.Errorf("nothing right is said of %s: %s", id, body)
			}
		}
	})
}
