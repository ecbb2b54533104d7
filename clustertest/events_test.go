package clustertest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/clustertest"
)

// A follower gets each event of the log once and in order, whichever coordinators are killed meanwhile.
func TestFollowingOverFailovers(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3}, func(t *testing.T, c *clustertest.Cluster) {
		conn := c.Desk()
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex // guards got
		var got []client.Event
		var following sync.WaitGroup
		following.Go(func() {
			for e, err := range conn.Events(ctx, client.Place{}, client.Filter{}) {
				if err != nil {
					t.Logf("told: %v", err)
					continue
				}
				mu.Lock()
				got = append(got, e)
				mu.Unlock()
			}
		})
		for range 4 {
			for range 5 {
				c.Decommission(0, time.Hour, "")
				c.Recommission(0)
			}
			leader := c.Leader()
			c.KillCoordinator(leader)
			c.Decommission(1, time.Hour, "")
			c.Recommission(1)
			c.RestartCoordinator(leader)
		}
		c.Sleep(5 * time.Second)
		cancel()
		following.Wait()

		var log []*api.Event
		for _, e := range c.AllEvents() {
			if e.Soft == 0 {
				log = append(log, e)
			}
		}
		if len(log) < 40 {
			t.Fatalf("got a log of %d events", len(log))
		}
		var last client.Place
		terms := map[uint64]bool{}
		for _, e := range got {
			if e.Place.Compare(last) <= 0 {
				t.Errorf("got %s %s after %s", e.Type, e.Place, last)
			}
			last = e.Place
			if e.Place.Soft > 0 {
				continue
			}
			if len(log) == 0 || api.PlaceOf(log[0]) != e.Place || log[0].Type != e.Type {
				t.Fatalf("got %s %s, want %v", e.Type, e.Place, log[:min(1, len(log))])
			}
			log, terms[e.Place.Term] = log[1:], true
		}
		if len(log) > 0 || len(terms) < 4 {
			t.Errorf("%d events of the log were not told; got terms %v", len(log), terms)
		}
	})
}
