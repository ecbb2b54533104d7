package preemption

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
)

func TestAzureReleaseOnlyWhenAlone(t *testing.T) {
	alone := []string{"pool_24"}
	for name, row := range map[string]struct {
		typ       string
		resources []string
		off       bool // acknowledging is not configured
		started   bool
		gone      bool
		want      bool
	}{
		"redeploy":           {typ: "Redeploy", resources: alone, want: true},
		"terminate":          {typ: "Terminate", resources: alone, want: true},
		"reboot":             {typ: "Reboot", resources: alone, want: true},
		"another case":       {typ: "Redeploy", resources: []string{"POOL_24", "pool_24"}, want: true},
		"preempt":            {typ: "Preempt", resources: alone},
		"freeze":             {typ: "Freeze", resources: alone},
		"unknown":            {typ: "Teleport", resources: alone},
		"with others":        {typ: "Redeploy", resources: []string{"pool_24", "pool_7"}},
		"others first":       {typ: "Terminate", resources: []string{"pool_7", "pool_24"}},
		"others only by now": {typ: "Redeploy", resources: []string{"pool_7"}},
		"not configured":     {typ: "Redeploy", resources: alone, off: true},
		"started":            {typ: "Redeploy", resources: alone, started: true},
		"gone":               {typ: "Redeploy", resources: alone, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			azureBubble(t, AzureConfig{Acknowledge: !row.off}, func(t *testing.T, c *azureCloud) {
				c.listen(t)
				id := c.Schedule(azurefake.Event{Type: row.typ, NotBefore: time.Now().Add(10 * time.Minute)})
				heard := c.within(t, time.Minute)
				c.Change(id, func(e *azurefake.Event) { e.Resources = row.resources })
				if row.started {
					c.Start(id)
				}
				if row.gone {
					c.Remove(id)
				}
				for range 2 { // it may be repeated
					if err := c.source.Release(t.Context(), heard.Notice); err != nil {
						t.Error(err)
					}
				}
				want := []string{}
				if row.want {
					want = append(want, id) // once: at the second call it has started
				}
				if got := c.Approved(); !slices.Equal(got, want) {
					t.Errorf("acknowledged %v, want %v", got, want)
				}
			})
		})
	}
}

func TestAzureReleaseIsNotForOthers(t *testing.T) {
	azureBubble(t, AzureConfig{Acknowledge: true}, func(t *testing.T, c *azureCloud) {
		id := c.Schedule(azurefake.Event{Type: "Redeploy"})
		for _, n := range []Notice{
			{Source: SourceEC2, ID: "scheduledevents/" + id, Kind: KindRedeploy}, {Source: SourceAzure, ID: id, Kind: KindRedeploy},
			{Source: SourceAzure, ID: "scheduledevents/" + id, Kind: KindPreempt}, // nothing is to be acknowledged
		} {
			if err := c.source.Release(t.Context(), n); err != nil || c.polls.Load() > 0 {
				t.Errorf("%+v: got %v, and %d questions", n, err, c.polls.Load())
			}
		}
	})
}

func TestAzureReleaseTriesAgain(t *testing.T) {
	azureBubble(t, AzureConfig{Acknowledge: true}, func(t *testing.T, c *azureCloud) {
		id := c.Schedule(azurefake.Event{Type: "Terminate", NotBefore: time.Now().Add(time.Hour)})
		n := Notice{Source: SourceAzure, ID: "scheduledevents/" + id, Kind: KindTerminate}
		c.Fail(http.StatusServiceUnavailable)
		time.AfterFunc(30*time.Second, c.heal)
		start := time.Now()
		if err := c.source.Release(t.Context(), n); err != nil || time.Since(start) > 32*time.Second || len(c.Approved()) != 1 {
			t.Errorf("got %v after %v, acknowledged %v", err, time.Since(start), c.Approved())
		}

		c.failWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		err := c.source.Release(ctx, n)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), id) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want why it went without after a minute", err, time.Since(start))
		}
	})
}

// A service that is slow to confirm an acknowledgement does not get it again and again.
func TestAzureReleaseIsSaidOnceToASlowService(t *testing.T) {
	azureBubble(t, AzureConfig{Acknowledge: true}, func(t *testing.T, c *azureCloud) {
		id := c.Schedule(azurefake.Event{Type: "Terminate", NotBefore: time.Now().Add(time.Hour)})
		var posts atomic.Int32
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				posts.Add(1)
				time.Sleep(12 * time.Second)
			}
			time.Sleep(3 * time.Second)
			c.Service.ServeHTTP(w, r)
		})
		n := Notice{Source: SourceAzure, ID: "scheduledevents/" + id, Kind: KindTerminate}
		if err := c.source.Release(t.Context(), n); err != nil || len(c.Approved()) != 1 || posts.Load() != 1 {
			t.Errorf("got %v, acknowledged %v by %d requests", err, c.Approved(), posts.Load())
		}
	})
}

func TestAzureReleaseReportsARefusal(t *testing.T) {
	azureBubble(t, AzureConfig{Acknowledge: true}, func(t *testing.T, c *azureCloud) {
		id := c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(time.Hour)})
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			c.Service.ServeHTTP(w, r)
		})
		start := time.Now()
		err := c.source.Release(t.Context(), Notice{Source: SourceAzure, ID: "scheduledevents/" + id, Kind: KindRedeploy})
		if s, ok := errors.AsType[*statusError](err); !ok || s.Code != http.StatusBadRequest || time.Since(start) > time.Second {
			t.Errorf("got %v after %v, want 400 at once", err, time.Since(start))
		}
	})
}
