package preemption

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

func TestGCENoticesAreUnderstood(t *testing.T) {
	const atOnce = 100 * time.Millisecond
	for _, row := range []struct {
		name     string
		show     func(*gceCloud)
		id       string
		kind     Kind
		lead     time.Duration // 0: no deadline
		appoints bool
		within   time.Duration
	}{
		{"preempted", func(c *gceCloud) { c.Preempt() }, "preempted", KindPreempt, 30 * time.Second, false, atOnce},
		{"terminate", func(c *gceCloud) {
			c.Maintenance("TERMINATE_ON_HOST_MAINTENANCE")
		}, "maintenance-event/terminate", KindStop, time.Minute, false, atOnce},
		{"migrate", func(c *gceCloud) {
			c.Maintenance("MIGRATE_ON_HOST_MAINTENANCE")
		}, "maintenance-event/migrate", KindMigrate, 0, false, atOnce},
		{"stop", func(c *gceCloud) {
			c.Stop(10 * time.Minute)
		}, "shutdown-details/stop-state", KindStop, 10 * time.Minute, false, atOnce},
		{"upcoming", func(c *gceCloud) {
			start := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
			c.Upcoming(fmt.Sprintf(`{"maintenance_status":"PENDING","window_start_time":%q}`, start))
		}, "upcoming-maintenance/announced", KindMaintenance, 24 * time.Hour, true, 66 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.listen(t)
				c.silent(t, 2*time.Minute)
				shown := time.Now()
				row.show(c)
				got := c.within(t, 70*time.Second)
				if got.Source != SourceGCE || got.ID != row.id || got.Kind != row.kind || got.Appointed != row.appoints ||
					got.Withdrawn || got.Reason == "" {
					t.Errorf("heard %+v", got)
				}
				if late := got.at.Sub(shown); late > row.within || !got.SeenAt.Equal(got.at) {
					t.Errorf("heard after %v, seen at %v, want within %v", late, got.SeenAt, row.within)
				}
				lead := got.Deadline.Sub(got.SeenAt)
				if got.Deadline.IsZero() != (row.lead == 0) || row.lead > 0 && (lead-row.lead).Abs() > row.within+time.Second {
					t.Errorf("deadline is %v after the notice, want %v", lead, row.lead)
				}
				c.silent(t, 2*time.Minute)
				c.Withdraw()
				taken := time.Now()
				gone := c.within(t, 70*time.Second)
				if !gone.Withdrawn || !gone.same(got.Notice) || gone.at.Sub(taken) > row.within {
					t.Errorf("heard %+v after %v, want the withdrawal of %s", gone, gone.at.Sub(taken), row.id)
				}
			})
		})
	}
}

func TestGCENoticeIsHeardAtOnce(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		const rounds = 300
		var late []time.Duration
		for phase := range rounds {
			c.silent(t, time.Duration(phase*7%rounds)*50*time.Millisecond)
			shown := time.Now()
			c.Preempt()
			late = append(late, c.within(t, 1500*time.Millisecond).at.Sub(shown))
			c.Withdraw()
			c.within(t, 1500*time.Millisecond)
		}
		slices.Sort(late)
		t.Logf("heard after: median %v, p99 %v, max %v", late[rounds/2], late[rounds*99/100], late[rounds-1])
		if p99 := late[rounds*99/100]; p99 > 100*time.Millisecond {
			t.Errorf("heard after %v at the 99th percentile, want 100ms at most", p99)
		}
	})
}

func TestGCENoticeIsHeardSoonAfterABurstOf503(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		const rounds = 60
		var late []time.Duration
		for phase := range rounds {
			c.silent(t, time.Duration(phase*7%rounds)*100*time.Millisecond)
			c.Fail(http.StatusServiceUnavailable)
			shown := time.Duration(phase) * 3 * time.Second / rounds
			c.silent(t, shown)
			c.Preempt()
			c.silent(t, 3*time.Second-shown)
			c.heal()
			healed := time.Now()
			late = append(late, c.within(t, time.Second).at.Sub(healed))
			c.Withdraw()
			c.within(t, time.Second)
		}
		slices.Sort(late)
		t.Logf("heard after recovery: median %v, p99 %v, max %v", late[rounds/2], late[rounds*99/100], late[rounds-1])
		if worst := late[rounds-1]; worst > 300*time.Millisecond {
			t.Errorf("heard %v after recovery, want 300ms at most", worst)
		}
	})
}

// TestGCEMaintenanceEventIsArmedFromBoot: Google warns only a machine that has asked.
func TestGCEMaintenanceEventIsArmedFromBoot(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		synctest.Wait()
		for range 10 {
			if _, byPath := c.asked(); byPath["/computeMetadata/v1/instance/maintenance-event"] == 0 {
				t.Fatalf("asked for %v, want maintenance-event among it", byPath)
			}
			c.silent(t, time.Minute)
		}
	})
}

func TestGCEKeysDoNotSpeakForEachOther(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.Preempt()
		c.within(t, time.Second)
		c.Maintenance("MIGRATE_ON_HOST_MAINTENANCE")
		c.within(t, time.Second)
		c.Maintenance("NONE")
		if got := c.within(t, time.Second); !got.Withdrawn || got.Kind != KindMigrate {
			t.Errorf("heard %+v, want the withdrawal of the migration", got)
		}
		c.silent(t, 5*time.Minute)
	})
}

func TestGCELighterMaintenanceWithdrawsTheGraver(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.Maintenance("TERMINATE_ON_HOST_MAINTENANCE")
		c.within(t, time.Second)
		c.Maintenance("MIGRATE_ON_HOST_MAINTENANCE")
		c.mustHear(t, KindMigrate, false)
		c.mustHear(t, KindStop, true)
		c.silent(t, time.Minute)
	})
}

// mustHear returns the next thing that the source says.
func (c *gceCloud) mustHear(t *testing.T, kind Kind, withdrawn bool) {
	t.Helper()
	select {
	case got := <-c.heard:
		if got.Kind != kind || got.Withdrawn != withdrawn {
			t.Errorf("heard %+v, want %s, withdrawn %t", got, kind, withdrawn)
		}
	case <-time.After(time.Minute):
		t.Fatalf("heard nothing, want %s", kind)
	}
}

func TestGCEMaintenanceBeginsAndEnds(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		start := time.Now().Add(time.Hour)
		show := func(status string) {
			c.Upcoming(fmt.Sprintf(`{"maintenanceStatus":%q,"windowStartTime":%q}`, status, start.Format(time.RFC3339)))
		}
		show("PENDING")
		first := c.within(t, 70*time.Second)
		start = start.Add(time.Hour)
		show("PENDING")
		if got := c.within(t, 70*time.Second); !got.same(first.Notice) || !got.Deadline.Equal(start) {
			t.Errorf("heard %+v, want the same notice for %v", got, start)
		}
		show("ONGOING")
		c.mustHear(t, KindMaintenance, false)
		c.mustHear(t, KindMaintenance, true)
		show("COMPLETE")
		if got := c.within(t, 70*time.Second); !got.Withdrawn || got.ID != "upcoming-maintenance/begun" {
			t.Errorf("heard %+v, want that it is over", got)
		}
	})
}

func TestGCEStopIsHeardWhereItWasNotSetUpBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newGCECloud(t, slog.New(slog.DiscardHandler), gcefake.Instance{})
		c.listen(t)
		c.silent(t, 2*time.Minute)
		c.Stop(time.Minute)
		shown := time.Now()
		if got := c.within(t, 5*time.Second); got.at.Sub(shown) > 2200*time.Millisecond || got.Deadline.IsZero() {
			t.Errorf("heard %+v after %v, want it from the next plain read", got, got.at.Sub(shown))
		}
	})
}

func TestGCEStopDoesNotWaitForItsDeadline(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.silent(t, time.Minute)
		c.hangFor("max-duration")
		c.Stop(5 * time.Minute)
		shown := time.Now()
		got := c.within(t, time.Second)
		if late := got.at.Sub(shown); late > 150*time.Millisecond || !got.Deadline.IsZero() {
			t.Errorf("heard %+v after %v, want it without a deadline", got, late)
		}
		c.heal()
		next := c.within(t, 12*time.Second)
		if want := shown.Add(5 * time.Minute); !next.same(got.Notice) || next.Deadline.Sub(want).Abs() > time.Second {
			t.Errorf("heard %+v, want the same notice by %v", next, want)
		}
		c.asked()
		c.silent(t, 5*time.Minute)
		if _, byPath := c.asked(); byPath["/computeMetadata/v1/instance/shutdown-details/max-duration"] > 0 {
			t.Errorf("asked for %v, want no more for a deadline that is known", byPath)
		}
	})
}

// Google's clock has written both times that a stop's deadline is made of.
func TestGCEStopIsByTheServicesClock(t *testing.T) {
	for _, ahead := range []time.Duration{-15 * time.Minute, -5 * time.Minute, -20 * time.Second, 0, 5 * time.Minute, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
					if strings.HasSuffix(r.URL.Path, "request-timestamp") {
						fromGoogle(time.Now().Add(ahead-2*time.Minute).UTC().Format(time.RFC3339))(w, r)
						return
					}
					c.Service.ServeHTTP(w, r)
				})
				c.listen(t)
				c.silent(t, time.Minute)
				c.Stop(10 * time.Minute)
				got := c.within(t, 5*time.Second)
				if left := got.Deadline.Sub(got.at); (left-8*time.Minute).Abs() > 3*time.Second || strings.Contains(got.Reason, "clock") != (ahead != 0) {
					t.Errorf("%s are left of %+v, want 8 minutes", left, got.Notice)
				}
				c.silent(t, time.Minute)
			})
		})
	}
}

// The graceful time is ended early, or the agent starts when it is over: the two keys beside the state say nothing any more.
func TestGCEStopThatIsPendingNoMore(t *testing.T) {
	for name, pending := range map[string]bool{"was heard before": true, "is heard first": false} {
		t.Run(name, func(t *testing.T) {
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.listen(t)
				c.silent(t, time.Minute)
				c.Stop(10 * time.Minute)
				if pending {
					c.within(t, time.Second)
				}
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, keyStopState) {
						fromGoogle("STOPPING")(w, r)
						return
					}
					c.Service.ServeHTTP(w, r)
				})
				got := c.within(t, 12*time.Second)
				if left := got.Deadline.Sub(got.at); (left - preemptLead).Abs() > time.Second {
					t.Errorf("%s are left of %+v, want what any machine has that is stopped", left, got.Notice)
				}
				c.silent(t, time.Minute)
			})
		})
	}
}

// From a server that answers late the deadline is heard late, but it is heard.
func TestGCEStopsDeadlineMayComeSlowly(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		stop := c.listen(t)
		c.silent(t, time.Minute)
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(700 * time.Millisecond)
			c.Service.ServeHTTP(w, r)
		})
		c.Stop(5 * time.Minute)
		shown := time.Now()
		if got := c.within(t, 2*time.Second); !got.Deadline.IsZero() {
			t.Errorf("heard %+v, want it without a deadline at first", got)
		}
		if got := c.within(t, 15*time.Second); got.Deadline.Sub(shown.Add(5*time.Minute)).Abs() > time.Second {
			t.Errorf("heard %+v, want it by %v", got, shown.Add(5*time.Minute))
		}
		stop()
		time.Sleep(time.Second) // the handlers sleep on after their clients are gone
	})
}

// hangFor makes requests hang whose path ends in suffix, and no others.
func (c *gceCloud) hangFor(suffix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.only = func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, suffix) }
	c.trouble = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
}

func TestGCEBelievedNoticeIsNotGivenAgain(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		seen := time.Now().Add(-20 * time.Second)
		known := Notice{Source: SourceGCE, ID: keyPreempted, Kind: KindPreempt, Deadline: seen.Add(30 * time.Second), SeenAt: seen}
		c.source.Believe(known, Notice{Source: SourceEC2, ID: keyPreempted, Kind: KindStop}, Notice{Source: SourceManual, ID: SourceManual})
		c.Preempt()
		c.listen(t)
		c.silent(t, time.Minute)
		c.Withdraw()
		if got := c.within(t, time.Second); !got.Withdrawn || !got.same(known) || !got.SeenAt.Equal(seen) || !got.Deadline.Equal(known.Deadline) {
			t.Errorf("heard %+v, want the withdrawal of %+v", got, known)
		}
	})
	gceBubble(t, func(t *testing.T, c *gceCloud) { // taken back while nobody listened
		c.source.Believe(Notice{Source: SourceGCE, ID: keyMaintenance + "/terminate", Kind: KindStop})
		c.listen(t)
		if got := c.within(t, time.Second); !got.Withdrawn || got.Kind != KindStop {
			t.Errorf("heard %+v, want the withdrawal", got)
		}
	})
}

func TestGCEInstanceIsDescribed(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		got, err := c.source.Instance(t.Context())
		want := Instance{ID: "4520031799277581759", Type: "n2-standard-4", Zone: "us-central1-a", LifeCycle: "spot"}
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		c.failWith(fromGoogle("../../etc passwd"))
		if got, err := c.source.Instance(t.Context()); err == nil {
			t.Errorf("got %+v, want an error for what is no name", got)
		}
		c.failWith(http.NotFound)
		if got, err := c.source.Instance(t.Context()); err == nil {
			t.Errorf("got %+v from somebody else's 404, want an error", got)
		}
		c.heal()
		c.refuse.Store(true)
		c.hangUp()
		synctest.Wait()
		start := time.Now()
		if got, err := c.source.Instance(t.Context()); err == nil || time.Since(start) > 0 {
			t.Errorf("got %+v, %v after %v, want an error at once: Google's client must not try again", got, err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newGCECloud(t, slog.New(slog.DiscardHandler), gcefake.Instance{})
		if got, err := c.source.Instance(t.Context()); err != nil || got != (Instance{LifeCycle: "standard"}) {
			t.Errorf("got %+v, %v, want little known", got, err)
		}
	})
}

// fromGoogle answers with a text as Google's server would.
func fromGoogle(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		fmt.Fprint(w, text)
	}
}

// TestGCEOverTCP leaves the bubble: the same source on its own network, found as Google's own tools find the server.
func TestGCEOverTCP(t *testing.T) {
	fake := gcefake.New(spot)
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	source, err := NewGCE(Metadata{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if source.metadata.transport.Proxy != nil {
		t.Error("a proxy may come between us and a link-local address")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	ended := make(chan error, 1)
	w := NewWatcher(slog.New(slog.DiscardHandler), source)
	go func() { ended <- w.Run(ctx) }()
	fake.Preempt()
	if n, err := w.Next(ctx); err != nil || n.Kind != KindPreempt {
		t.Errorf("got %+v, %v, want preempt", n, err)
	}
	fake.Withdraw()
	if n, err := w.Next(ctx); err != nil || !n.Withdrawn {
		t.Errorf("got %+v, %v, want its withdrawal", n, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestGCEBadEndpointIsRefused(t *testing.T) {
	for _, endpoint := range []string{"169.254.169.254", "ftp://x", "http://", "http://%zz"} {
		if _, err := NewGCE(Metadata{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("endpoint %q was taken", endpoint)
		}
	}
}
