package clustertest_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// lines keeps the log lines of all daemons of a cluster.
type lines struct {
	mu  sync.Mutex // guards all
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// take returns the lines with all of the words in them, and forgets everything.
func (l *lines) take(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			found = append(found, line)
		}
	}
	l.all = nil
	return found
}

// Each coordinator's log says who leads and who is away. A restart is no error anywhere.
func TestLogsSayWhoLeadsAndWhoIsAway(t *testing.T) {
	var said lines
	bubble(t, clustertest.Config{Coordinators: 3, Log: &said}, func(t *testing.T, c *clustertest.Cluster) {
		leader := c.Leader()
		third := (leader + 2) % 3
		c.Sleep(time.Second)
		if got := said.take("another coordinator leads", "name="+clustertest.CoordinatorName(leader)); len(got) != 2 {
			t.Errorf("got %q, want both followers to say who leads", got)
		}
		c.StopCoordinator(leader)
		c.Sleep(3 * time.Second)
		c.RestartCoordinator(leader)
		c.Sleep(30 * time.Second)
		for _, line := range said.take("level=ERROR") {
			t.Errorf("a planned restart is an error: %s", line)
		}
		c.KillCoordinator(third)
		c.Sleep(30 * time.Second)
		if got := said.take("a coordinator does not answer", "name="+clustertest.CoordinatorName(third)); len(got) != 2 {
			t.Errorf("got %q, want both others to say who is away", got)
		}
		c.KillCoordinator(leader)
		c.Sleep(time.Minute)
		if got := said.take("no coordinator leads"); len(got) != 1 {
			t.Errorf("got %q, want the last one to say, once, that nobody leads", got)
		}
		c.RestartCoordinator(leader)
		c.RestartCoordinator(third)
		c.Sleep(30 * time.Second)
		if got := said.take("a coordinator answers again"); len(got) < 2 {
			t.Errorf("got %q, want the last one to say that both are back", got)
		}
	})
}
