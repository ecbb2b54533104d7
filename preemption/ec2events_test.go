package preemption

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// event is an active event that begins at an instant.
func event(id, code string, from time.Time) ec2fake.Event {
	return ec2fake.Event{Code: code, Description: "about " + id, EventID: id, State: "active", NotBefore: ec2fake.EventTime(from)}
}

// calendar is a bubble whose source asks no path more often than the scheduled events, which are days ahead.
func calendar(t *testing.T, test func(t *testing.T, c *cloud)) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler), Poll: scheduledEvery}})
		test(t, c)
	})
}

func TestScheduledEventIsAnAppointment(t *testing.T) {
	for code, kind := range map[string]Kind{
		"instance-stop":       KindStop,
		"instance-retirement": KindRetirement,
		"instance-reboot":     KindReboot,
		"system-reboot":       KindReboot,
		"system-maintenance":  KindMaintenance,
		"instance-teleport":   KindMaintenance, // an unknown code
	} {
		t.Run(code, func(t *testing.T) {
			calendar(t, func(t *testing.T, c *cloud) {
				c.listen(t)
				c.silent(t, 90*time.Second)
				from := time.Now().Add(48 * time.Hour).Truncate(time.Second)
				c.Schedule(event("instance-event-1", code, from))
				shown := time.Now()
				got := c.within(t, 10*time.Minute)
				if got.Kind != kind || !got.Deadline.Equal(from) || !got.Appointed || got.ID != pathScheduled+"/instance-event-1" {
					t.Errorf("heard %+v, want %s at %v", got, kind, from)
				}
				if late := got.at.Sub(shown); late > scheduledEvery {
					t.Errorf("heard after %v, want within %v", late, scheduledEvery)
				}
				if !strings.Contains(got.Reason, code) || !strings.Contains(got.Reason, "about instance-event-1") {
					t.Errorf("reason is %q, want code and description", got.Reason)
				}
			})
		})
	}
}

func TestEventThatIsOverIsGone(t *testing.T) {
	for _, state := range []string{"completed", "canceled", ""} {
		calendar(t, func(t *testing.T, c *cloud) {
			a, b := event("a", "instance-stop", time.Now().Add(time.Hour)), event("b", "instance-reboot", time.Now().Add(2*time.Hour))
			c.Schedule(a)
			c.listen(t)
			c.within(t, 5*time.Minute)
			c.Schedule(b, a)
			c.within(t, 5*time.Minute)
			if state == "" {
				c.Schedule(b)
			} else {
				a.State = state
				c.Schedule(a, b)
			}
			if got := c.within(t, 5*time.Minute); !got.Withdrawn || got.ID != pathScheduled+"/a" {
				t.Errorf("%q: heard %+v, want the withdrawal of a", state, got)
			}
		})
	}
}

func TestEventIsMovedEitherWay(t *testing.T) {
	calendar(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		for _, in := range []time.Duration{48 * time.Hour, 72 * time.Hour, 24 * time.Hour} {
			from := time.Now().Add(in)
			c.Schedule(event("a", "instance-retirement", from))
			if got := c.within(t, 5*time.Minute); !got.Deadline.Equal(from) || got.Withdrawn {
				t.Errorf("heard %+v, want it at %v", got, from)
			}
		}
	})
}

// TestUnreadableEventHidesNothing has bad entries beside good ones: the good ones are heard, and no event counts as gone
// that a bad entry may have been.
func TestUnreadableEventHidesNothing(t *testing.T) {
	for name, bad := range map[string]string{
		"not an event":  `7`,
		"wrong types":   `{"Code":["instance-stop"],"EventId":"a"}`,
		"no id":         `{"Code":"instance-stop","State":"active","NotBefore":"21 Jan 2029 09:00:43 GMT"}`,
		"id of a path":  `{"Code":"instance-stop","EventId":"../a","State":"active","NotBefore":"21 Jan 2029 09:00:43 GMT"}`,
		"unknown state": `{"Code":"instance-stop","EventId":"a","State":"perhaps","NotBefore":"21 Jan 2029 09:00:43 GMT"}`,
		"no start":      `{"Code":"instance-stop","EventId":"a","State":"active"}`,
		"other format":  `{"Code":"instance-stop","EventId":"a","State":"active","NotBefore":"2029-01-21T09:00:43Z"}`,
		"other zone":    `{"Code":"instance-stop","EventId":"a","State":"active","NotBefore":"21 Jan 2029 09:00:43 PST"}`,
	} {
		t.Run(name, func(t *testing.T) {
			calendar(t, func(t *testing.T, c *cloud) {
				c.Schedule(event("a", "instance-stop", time.Now().Add(48*time.Hour)))
				c.listen(t)
				first := c.within(t, 5*time.Minute)
				good := fmt.Sprintf(`{"Code":"instance-reboot","EventId":"b","State":"active","NotBefore":%q}`,
					ec2fake.EventTime(time.Now().Add(time.Hour)))
				c.Show(pathScheduled, "["+bad+","+good+"]")
				if got := c.within(t, 10*time.Minute); got.Kind != KindReboot || got.ID != pathScheduled+"/b" || got.Withdrawn {
					t.Errorf("heard %+v, want the reboot", got)
				}
				if h := c.source.Health()[3]; h.Path != pathScheduled || h.Trouble == "" {
					t.Errorf("health is %+v, want it to tell of the entry", h)
				}
				c.Show(pathScheduled, "["+good+"]")
				if got := c.within(t, 10*time.Minute); !got.Withdrawn || !got.same(first.Notice) {
					t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
				}
			})
		})
	}
}

func TestWhatIsNoListOfEventsSaysNothing(t *testing.T) {
	calendar(t, func(t *testing.T, c *cloud) {
		c.Schedule(event("a", "instance-stop", time.Now().Add(48*time.Hour)))
		c.listen(t)
		c.within(t, 5*time.Minute)
		for _, body := range []string{"null", "{}", `""`, "[", "[]]", " "} {
			c.Show(pathScheduled, body)
			c.silent(t, 5*time.Minute)
		}
		c.onlyData(http.NotFound)
		if got := c.within(t, 5*time.Minute); !got.Withdrawn {
			t.Errorf("heard %+v, want the withdrawal", got)
		}
	})
}

// TestEventWhoseTimeHasCome has an event that can happen at any moment until its end: a node that sees it only then has no
// time to wait.
func TestEventWhoseTimeHasCome(t *testing.T) {
	begun := func(c *cloud, in time.Duration) (from, until time.Time) {
		e := event("a", "instance-stop", time.Now().Add(in))
		from = time.Now().Add(in)
		until = from.Add(2 * time.Hour)
		e.NotAfter = ec2fake.EventTime(until)
		c.Schedule(e)
		return from, until
	}
	t.Run("known before", func(t *testing.T) {
		calendar(t, func(t *testing.T, c *cloud) {
			c.listen(t)
			from, until := begun(c, time.Hour)
			ahead := c.within(t, 30*time.Minute)
			if !ahead.Appointed || !ahead.Deadline.Equal(from) {
				t.Errorf("heard %+v, want an appointment at %v", ahead, from)
			}
			incident := Open(ahead.Notice)
			now := c.within(t, time.Hour)
			if now.Appointed || !now.Deadline.Equal(until) || !now.same(ahead.Notice) {
				t.Errorf("heard %+v, want it at any moment until %v", now, until)
			}
			if !incident.Join(now.Notice) || incident.Notices[0].Appointed || !incident.Deadline().Equal(until) {
				t.Errorf("the incident is %+v, want no appointment any more", incident)
			}
			if got := incident.OutlivedAt(); !got.Equal(until.Add(outliveAfter)) {
				t.Errorf("outlived at %v, want ten minutes after %v", got, until)
			}
		})
	})
	t.Run("seen late", func(t *testing.T) {
		calendar(t, func(t *testing.T, c *cloud) {
			_, until := begun(c, -time.Hour)
			c.listen(t)
			got := c.within(t, 10*time.Minute)
			if got.Appointed || !got.Deadline.Equal(until) {
				t.Errorf("heard %+v, want it at any moment until %v", got, until)
			}
			if stance, _ := new(Open(got.Notice)).Stance(time.Now(), 0); stance != StanceDrain {
				t.Errorf("stance is %s, want %s", stance, StanceDrain)
			}
		})
	})
	t.Run("over", func(t *testing.T) {
		calendar(t, func(t *testing.T, c *cloud) {
			begun(c, -3*time.Hour)
			c.listen(t)
			c.silent(t, 10*time.Minute)
		})
	})
}

// Amazon need not give an event's end. That its earliest start has passed does not end it: a node that first hears of it
// then leaves, and a node that has left stays away, until the event is completed.
func TestEventWithoutAnEndStands(t *testing.T) {
	calendar(t, func(t *testing.T, c *cloud) {
		began := time.Now()
		e := ec2fake.Event{Code: "instance-stop", Description: "degraded hardware", EventID: "instance-event-1", State: "active",
			NotBefore: ec2fake.EventTime(began.Add(-5 * time.Minute))}
		c.Schedule(e)
		c.listen(t)
		got := c.within(t, 2*time.Minute)
		i := Open(got.Notice)
		if left := got.Deadline.Sub(began); got.Kind != KindStop || got.Appointed || left < time.Minute || left > 4*time.Minute || !i.OutlivedAt().IsZero() {
			t.Errorf("got %+v, outlived at %v, want a stop within minutes that no clock ends", got.Notice, i.OutlivedAt())
		}
		c.silent(t, time.Hour)
		e.State = "completed"
		c.Schedule(e)
		if got := c.within(t, 5*time.Minute); !got.Withdrawn {
			t.Errorf("got %+v, want it withdrawn", got.Notice)
		}
	})
}

// An event's times are by the service's clock, too: a host whose clock is an hour behind would begin to leave after the
// machine has stopped.
func TestEventsTimeIsTheServicesWhereTheClocksDiffer(t *testing.T) {
	calendar(t, func(t *testing.T, c *cloud) {
		const ahead, lead = time.Hour, 3 * time.Hour
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			c.ServeHTTP(w, r)
		})
		c.Schedule(ec2fake.Event{Code: "instance-stop", EventID: "instance-event-1", State: "active", NotBefore: ec2fake.EventTime(time.Now().Add(ahead + lead))})
		c.listen(t)
		got := c.within(t, 2*time.Minute)
		if left := got.Deadline.Sub(got.at); (left - lead).Abs() > 2*time.Minute {
			t.Errorf("%s are left of %+v, want %s", left, got.Notice, lead)
		}
		c.silent(t, time.Hour)
	})
}
