package preemption

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
)

func TestAzureEventsAreHeardWithinOnePoll(t *testing.T) {
	for typ, row := range map[string]struct {
		kind      Kind
		appointed bool
		stance    Stance
	}{
		"Freeze": {KindFreeze, true, StanceIgnore}, "Reboot": {KindReboot, true, StanceWatch}, "Redeploy": {KindRedeploy, true, StanceDrain},
		"Preempt": {KindPreempt, false, StanceDrain}, "Terminate": {KindTerminate, false, StanceDrain},
		"Teleport": {KindMaintenance, true, StancePreCopy}, // not a type of Azure's: step aside, but stay
	} {
		for _, iso := range []bool{false, true} {
			t.Run(fmt.Sprint(typ, " iso ", iso), func(t *testing.T) {
				azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
					if iso {
						c.WriteISO()
					}
					c.listen(t)
					c.silent(t, time.Minute+500*time.Millisecond)
					shown := time.Now()
					at := shown.Add(15 * time.Minute).Truncate(time.Second)
					id := c.Schedule(azurefake.Event{Type: typ, NotBefore: at, Description: "Host\nserver", Seconds: 9})
					got := c.within(t, time.Minute)
					if got.Source != SourceAzure || got.ID != "scheduledevents/"+id || got.Kind != row.kind || got.Withdrawn ||
						!got.Deadline.Equal(at) || got.Appointed != row.appointed || Policy(nil).Stance(got.Kind) != row.stance {
						t.Errorf("heard %+v, want %s by %v", got, row.kind, at)
					}
					if late := got.at.Sub(shown); late > time.Second || !got.SeenAt.Equal(got.at) {
						t.Errorf("heard after %v, seen at %v, want within one poll", late, got.SeenAt)
					}
					if want := "Azure " + typ + " by Platform for 9 s: Host server"; got.Reason != want {
						t.Errorf("reason %q, want %q", got.Reason, want)
					}
					c.Remove(id)
					gone := time.Now()
					got = c.within(t, time.Minute)
					if late := got.at.Sub(gone); !got.Withdrawn || late > time.Second {
						t.Errorf("heard %+v after %v, want it withdrawn within one poll", got, late)
					}
				})
			})
		}
	}
}

func TestAzureEventWithoutATimeIsDueAtTheLeastNotice(t *testing.T) {
	for typ, least := range map[string]time.Duration{"Preempt": 30 * time.Second, "Terminate": 5 * time.Minute, "Redeploy": 10 * time.Minute} {
		for _, text := range []string{`""`, `null`, `"soon"`, `"0001-01-01T00:00:00Z"`, `7`} {
			t.Run(typ+" "+text, func(t *testing.T) {
				azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
					c.show(2, fmt.Sprintf(`{"EventId":"a","EventType":%q,"Resources":["pool_24"],"EventStatus":"Scheduled","NotBefore":%s}`, typ, text))
					c.listen(t)
					got := c.within(t, 2*time.Minute)
					if got.Deadline.Sub(got.SeenAt) != least || got.Appointed {
						t.Errorf("heard %+v, want %v to leave in, from now on", got, least)
					}
				})
			})
		}
	}
}

func TestAzureEventThatHasStartedIsDue(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.listen(t)
		c.silent(t, time.Minute)
		at := time.Now().Add(15 * time.Minute)
		id := c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: at})
		first := c.within(t, time.Minute)

		c.Start(id) // somebody approved it
		got := c.within(t, 10*time.Minute)
		if !got.same(first.Notice) || got.Kind != KindRedeploy || !got.Deadline.Equal(got.at) || !got.SeenAt.Equal(first.SeenAt) {
			t.Errorf("heard %+v, want the same notice, due at once", got)
		}
		c.Remove(id)
		if got := c.within(t, time.Minute); !got.Withdrawn || !got.same(first.Notice) {
			t.Errorf("heard %+v, want it withdrawn", got)
		}

		// The hardware failed: there is no notice at all.
		id = c.Schedule(azurefake.Event{Type: "Reboot"})
		c.Start(id)
		if got := c.within(t, 10*time.Minute); got.Kind != KindReboot || !got.Deadline.Equal(got.SeenAt) {
			t.Errorf("heard %+v, want a reboot, due at once", got)
		}
		c.Remove(id)
		c.within(t, time.Minute)

		// It starts at the announced time: nothing new.
		id = c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(10 * time.Minute)})
		c.within(t, 10*time.Minute+30*time.Second)
		c.Start(id)
		c.silent(t, 10*time.Minute)
	})
}

// NotBefore is the earliest start of an event. A late event is not called off as long as it is listed.
func TestAzureEventStandsAsLongAsItIsListed(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.listen(t)
		id := c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(10 * time.Minute)})
		got := c.within(t, time.Minute)
		i := Open(got.Notice)
		c.silent(t, time.Hour)
		if until := i.OutlivedAt(); !until.IsZero() {
			t.Errorf("outlived at %v: the node would be given new blocks, and not be warned again", until)
		}
		c.Start(id)
		c.silent(t, time.Minute)
		c.Remove(id)
		if got := c.within(t, time.Minute); !got.Withdrawn || !i.Join(got.Notice) || !i.Withdrawn() {
			t.Errorf("heard %+v, want it withdrawn", got)
		}
	})
}

// A host that has found no time server yet has the time that Azure gives, and no more.
func TestAzureTimeIsTheServicesWhereTheClocksDiffer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"this host's is ahead": -4 * time.Minute, "this host's is behind": time.Hour, "a little": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
					c.Service.ServeHTTP(w, r)
				})
				c.listen(t)
				c.silent(t, time.Minute+700*time.Millisecond)
				for typ, lead := range map[string]time.Duration{"Preempt": 30 * time.Second, "Redeploy": 10 * time.Minute} {
					id := c.Schedule(azurefake.Event{Type: typ, NotBefore: time.Now().Add(ahead + lead)})
					got := c.within(t, 2*time.Second)
					if left := got.Deadline.Sub(got.at); left < lead-3*time.Second || left > lead+time.Second || !strings.Contains(got.Reason, "clock") {
						t.Errorf("%s are left of %+v, want %s", left, got.Notice, lead)
					}
					c.silent(t, lead/2) // a shift by the clocks' grain is no news
					c.Remove(id)
					c.within(t, 2*time.Second)
				}
			})
		})
	}
}

func TestAzureTimePastIsNeverStale(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		// This host's clock is ahead, or the agent did not run when the event was first listed. A listed event is not over.
		c.Schedule(azurefake.Event{Type: "Preempt", NotBefore: time.Now().Add(-5 * time.Minute)})
		c.listen(t)
		if got := c.within(t, 10*time.Minute); got.Kind != KindPreempt || !got.Deadline.Equal(got.SeenAt) {
			t.Errorf("heard %+v, want preempt, due at once", got)
		}
	})
}

func TestAzureSameEventChanges(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.listen(t)
		at := time.Now().Add(time.Hour).Truncate(time.Second)
		id := c.Schedule(azurefake.Event{Type: "Reboot", NotBefore: at})
		first := c.within(t, time.Minute)

		c.Change(id, func(e *azurefake.Event) { e.NotBefore = at.Add(24 * time.Hour) })
		if got := c.within(t, time.Minute); !got.same(first.Notice) || !got.Deadline.Equal(at.Add(24*time.Hour)) {
			t.Errorf("heard %+v, want the appointment a day later", got)
		}
		c.Change(id, func(e *azurefake.Event) { e.Type = "Redeploy" })
		if got := c.within(t, time.Minute); !got.same(first.Notice) || got.Kind != KindRedeploy {
			t.Errorf("heard %+v, want a redeploy of the same id", got)
		}
		c.Change(id, func(e *azurefake.Event) { e.Description = "other words" })
		c.silent(t, time.Minute)
		c.Change(id, func(e *azurefake.Event) { e.Resources = []string{"pool_7"} }) // it no longer names this machine
		if got := c.within(t, time.Minute); !got.Withdrawn || !got.same(first.Notice) {
			t.Errorf("heard %+v, want it withdrawn", got)
		}
	})
}

func TestAzureEventsOfOthersAreNothing(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		for i, typ := range []string{"Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"} {
			c.Schedule(azurefake.Event{Type: typ, Resources: []string{fmt.Sprint("pool_", i), "pool_2", "pool_240", "pool_2 4", "ool_24"}})
		}
		c.listen(t)
		for range 500 {
			c.silent(t, time.Second)
		}
		if got := c.polls.Load(); got < 500 {
			t.Errorf("%d polls, want one a second", got)
		}
		if good, trouble := c.events(); trouble != "" || time.Since(good) > time.Second {
			t.Errorf("last good poll %v ago, trouble %q", time.Since(good), trouble)
		}
		c.Schedule(azurefake.Event{Type: "Preempt", Resources: []string{"pool_7", "POOL_24"}}) // Azure's names have no case
		if got := c.within(t, time.Minute); got.Kind != KindPreempt {
			t.Errorf("heard %+v, want preempt", got)
		}
	})
}

func TestAzureManyEventsAtOnce(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.listen(t)
		c.silent(t, time.Minute)
		for i := range 1000 { // a whole scale set is reclaimed
			c.Schedule(azurefake.Event{Type: "Preempt", Resources: []string{fmt.Sprint("pool_", i)}, NotBefore: time.Now().Add(30 * time.Second),
				Description: "Virtual machine is going to be preempted by the platform to recover capacity."})
		}
		if got := c.within(t, 3*time.Second); got.Kind != KindPreempt || got.at.Sub(got.SeenAt) != 0 {
			t.Errorf("heard %+v, want preempt", got)
		}
	})
}

func TestAzureNewIDForTheSameEventLeavesNoGap(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.listen(t)
		old := c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(15 * time.Minute)})
		first := c.within(t, time.Minute)
		i := Open(first.Notice)
		c.Change(old, func(e *azurefake.Event) { e.ID = "new" }) // as Microsoft's mock does when an event starts
		c.Start("new")
		heard := c.all(time.Minute)
		if len(heard) != 2 || heard[0].ID != "scheduledevents/new" || heard[0].Withdrawn || heard[1].ID != first.ID || !heard[1].Withdrawn {
			t.Fatalf("heard %+v, want the new one, then the old one withdrawn", heard)
		}
		for _, h := range heard {
			i.Join(h.Notice)
			if i.Withdrawn() || i.Kind() != KindRedeploy {
				t.Errorf("after %+v the incident is %s, withdrawn %v", h, i.Kind(), i.Withdrawn())
			}
		}
	})
}

func TestAzureIncarnationIsTakenAsItComes(t *testing.T) {
	azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
		c.show(700, "")
		c.listen(t)
		c.silent(t, time.Minute)
		// The incarnation starts anew: a source that waits for 701 would never hear of this event.
		c.show(1, `{"EventId":"a","EventType":"Preempt","Resources":["pool_24"],"EventStatus":"Scheduled","NotBefore":""}`)
		c.within(t, time.Second)
		c.show(1, "")
		if got := c.within(t, time.Second); !got.Withdrawn {
			t.Errorf("heard %+v, want it withdrawn", got)
		}
	})
}

func TestAzureNameThatIsNotKnownIsNeitherYesNorNo(t *testing.T) {
	var log bytes.Buffer
	azureBubble(t, AzureConfig{Metadata: Metadata{Log: slog.New(slog.NewTextHandler(&log, nil))}}, func(t *testing.T, c *azureCloud) {
		known := Notice{Source: SourceAzure, ID: "scheduledevents/before", Kind: KindRedeploy, Appointed: true, Deadline: time.Now().Add(time.Hour)}
		c.source.Believe(known)
		c.onlyCompute(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c.Schedule(azurefake.Event{Type: "Preempt", Resources: []string{"pool_7"}})
		c.listen(t)
		c.silent(t, time.Minute)
		good, trouble := c.events()
		if !good.IsZero() || !strings.Contains(trouble, "name is not known") || !strings.Contains(trouble, "configuration") {
			t.Errorf("good poll at %v, trouble %q", good, trouble)
		}
		if all := c.source.Health(); len(all) != 2 || all[1].Path != pathCompute || all[1].Trouble == "" {
			t.Errorf("health %+v, want trouble with the name in it", all)
		}
		if names, polls := c.names.Load(), c.polls.Load(); names < 59 || polls < 59 || polls > 62 {
			t.Errorf("%d questions for the name, %d polls, want one each second", names, polls)
		}
		c.Schedule(azurefake.Event{Type: "Preempt"})
		c.silent(t, 2*time.Second)
		c.heal()
		healed := time.Now()
		heard := c.all(time.Minute)
		if len(heard) != 2 || heard[0].Kind != KindPreempt || heard[0].at.Sub(healed) > 1500*time.Millisecond || !heard[1].Withdrawn || !heard[1].same(known) {
			t.Errorf("heard %+v, want our event, and the believed one withdrawn", heard)
		}
		if all := c.source.Health(); len(all) != 1 || all[0].Trouble != "" {
			t.Errorf("health %+v, want all well", all)
		}
		c.onlyCompute(http.NotFound)
		c.silent(t, time.Minute) // the name is known for good
	})
	if got := strings.Count(log.String(), "\n"); got != 4 { // two runs of failures, each logged at its start and its end
		t.Errorf("logged %d lines, want 4:\n%s", got, log.String())
	}
}

func TestAzureEmptyListNeedsNoName(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		known := Notice{Source: SourceAzure, ID: "scheduledevents/before", Kind: KindPreempt}
		c.source.Believe(known)
		c.onlyCompute(http.NotFound)
		c.listen(t)
		if got := c.within(t, time.Second); !got.Withdrawn || !got.same(known) {
			t.Errorf("heard %+v, want the withdrawal of %+v", got, known)
		}
	})
}

func TestAzureBelievedNoticeIsNotGivenAgain(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		at := time.Now().Add(-5 * time.Minute)
		id := c.Schedule(azurefake.Event{Type: "Redeploy"})
		c.Start(id)
		known := Notice{Source: SourceAzure, ID: "scheduledevents/" + id, Kind: KindRedeploy, Deadline: at, Appointed: true, Stands: true, SeenAt: at.Add(-10 * time.Minute)}
		c.source.Believe(known, Notice{Source: SourceEC2, ID: "spot/instance-action", Kind: KindStop})
		c.listen(t)
		c.silent(t, time.Minute)
		c.Remove(id)
		if got := c.within(t, 5*time.Second); !got.Withdrawn || !got.same(known) || !got.SeenAt.Equal(known.SeenAt) {
			t.Errorf("heard %+v, want the withdrawal of %+v", got, known)
		}
	})
}

// TestAzureMachineThatCameBackStays is about the ten minutes in which the event that moved a machine is still listed.
func TestAzureMachineThatCameBackStays(t *testing.T) {
	booted := time.Now()
	uptime := func() time.Duration { return time.Since(booted) }
	azureBubble(t, AzureConfig{Uptime: uptime}, func(t *testing.T, c *azureCloud) {
		booted = time.Now().Add(-30 * time.Second)
		id := c.Schedule(azurefake.Event{Type: "Redeploy"})
		c.Start(id)
		stop := c.listen(t)
		got := c.within(t, time.Hour)
		if got.Kind != KindMaintenance || Policy(nil).Stance(got.Kind).AtLeast(StanceDrain) {
			t.Errorf("heard %+v, want no reason to leave", got)
		}
		stop()
		c.restart(t)
		c.source.Believe(got.Notice)
		c.listen(t)
		c.silent(t, time.Minute)

		// A scheduled event is yet to come, however recently the machine booted.
		booted = time.Now()
		c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(10 * time.Minute)})
		if got := c.within(t, time.Minute); got.Kind != KindRedeploy {
			t.Errorf("heard %+v, want a redeploy", got)
		}
	})
}

func TestAzureInstanceIsDescribed(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		got, err := c.source.Instance(t.Context())
		want := Instance{ID: azureMachine.ID, Type: "Standard_E8ds_v5", Zone: "westeurope-2", LifeCycle: "spot"}
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for body, want := range map[string]Instance{
			`{"name":"a","vmSize":"s","location":"westus","priority":"Regular"}`: {Type: "s", Zone: "westus", LifeCycle: "on-demand"},
			`{"name":"a","location":"../etc"}`:                                   {},
			`{"vmSize":"s"}`:                                                     {},
			`[]`:                                                                 {},
		} {
			c.onlyCompute(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
			if got, err := c.source.Instance(t.Context()); got != want || (err != nil) != (want == Instance{}) {
				t.Errorf("%s: got %+v, %v, want %+v", body, got, err, want)
			}
		}
	})
}

// TestAzureOverTCP leaves the bubble: the same source on its own network.
func TestAzureOverTCP(t *testing.T) {
	fake := azurefake.New(azureMachine)
	fake.Schedule(azurefake.Event{Type: "Preempt"})
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	cloud, err := Settings{Provider: SourceAzure, Endpoint: server.URL + "/"}.Open(slog.New(slog.DiscardHandler), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	source := cloud.(*Azure)
	defer source.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n, err := source.Next(ctx); err != nil || n.Kind != KindPreempt {
		t.Errorf("got %+v, %v, want preempt", n, err)
	}
	if source.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy may come between us and a link-local address")
	}
	if _, err := (Settings{Provider: SourceAzure, Endpoint: "169.254.169.254"}).Open(slog.New(slog.DiscardHandler), nil, nil); err == nil {
		t.Error("an endpoint that is no URL was taken")
	}
}
