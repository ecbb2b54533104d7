package preemption

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
)

// azureTroubles are the ways in which the service fails, each set on a healthy cloud and taken off by heal.
var azureTroubles = map[string]func(*azureCloud){
	"503":     func(c *azureCloud) { c.Fail(http.StatusServiceUnavailable) },
	"429":     func(c *azureCloud) { c.Fail(http.StatusTooManyRequests) },
	"404":     func(c *azureCloud) { c.Fail(http.StatusNotFound) }, // the list always exists
	"410":     func(c *azureCloud) { c.Fail(http.StatusGone) },     // "retry after some time", says Azure
	"400":     func(c *azureCloud) { c.Fail(http.StatusBadRequest) },
	"hang":    func(c *azureCloud) { c.failWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }) },
	"refused": func(c *azureCloud) { c.refuse.Store(true); c.source.client.CloseIdleConnections() },
	"reset": func(c *azureCloud) {
		c.failWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	},
	"redirect": func(c *azureCloud) {
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				fmt.Fprint(w, `{"DocumentIncarnation":1,"Events":[]}`)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		})
	},
	"no body":        func(c *azureCloud) { c.failWith(func(http.ResponseWriter, *http.Request) {}) },
	"no content":     func(c *azureCloud) { c.Fail(http.StatusNoContent) },
	"garbage":        says("<html>?"),
	"null":           says("null"),
	"no list":        says(`{"DocumentIncarnation":1}`),
	"no count":       says(`{"Events":[]}`),
	"null list":      says(`{"DocumentIncarnation":1,"Events":null}`),
	"half":           says(`{"DocumentIncarnation":1,"Events":[]`),
	"no id":          says(`{"DocumentIncarnation":1,"Events":[{"EventType":"Preempt","Resources":["pool_24"]}]}`),
	"bad id":         says(`{"DocumentIncarnation":1,"Events":[{"EventId":"../a","EventType":"Preempt","Resources":["pool_24"]}]}`),
	"no type":        says(`{"DocumentIncarnation":1,"Events":[{"EventId":"a","Resources":["pool_24"]}]}`),
	"bad type":       says(`{"DocumentIncarnation":1,"Events":[{"EventId":"a","EventType":7,"Resources":["pool_24"]}]}`),
	"no names":       says(`{"DocumentIncarnation":1,"Events":[{"EventId":"a","EventType":"Preempt"}]}`),
	"bad names":      says(`{"DocumentIncarnation":1,"Events":[{"EventId":"a","EventType":"Preempt","Resources":"pool_24"}]}`),
	"endless body":   func(c *azureCloud) { c.failWith(azureFlood(http.StatusOK)) },
	"endless 503":    func(c *azureCloud) { c.failWith(azureFlood(http.StatusServiceUnavailable)) },
	"trickling body": func(c *azureCloud) { c.failWith(trickle) },
}

// says makes the service answer every question with this text.
func says(text string) func(*azureCloud) {
	return func(c *azureCloud) { c.failWith(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }) }
}

// azureFlood answers with an empty list in a body that has no end. Its chunks are large, so that many tests of it do not
// take minutes.
func azureFlood(status int) http.HandlerFunc {
	chunk := bytes.Repeat([]byte(" "), azureBodyLimit)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"DocumentIncarnation":1,"Events":[]}`)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func TestAzureNoticeInTheMiddleOfTroubleIsHeardSoonAfter(t *testing.T) {
	for name, begin := range azureTroubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
				c.listen(t)
				c.silent(t, time.Minute)
				// One long outage, then short ones that end at every phase of a poll.
				for round := range 9 {
					half := longOutage(name) / 2
					if round > 0 {
						half = 6*time.Second + time.Duration(round)*65*time.Millisecond
					}
					polls, begun := c.polls.Load(), time.Now()
					begin(c)
					c.silent(t, half)
					id := c.Schedule(azurefake.Event{Type: "Preempt", NotBefore: time.Now().Add(2 * half)})
					c.silent(t, half)
					if _, trouble := c.events(); trouble == "" {
						t.Error("health is good in the middle of trouble")
					}
					if open := c.open.Load(); open > 2 {
						t.Errorf("%d questions wait for an answer, want one that is late and one that is not", open)
					}
					asked, seconds := c.polls.Load()-polls, int64(time.Since(begun)/time.Second)
					if name != "refused" && asked < seconds-1 || asked > 2*seconds { // a redirect, or a second try on a new connection
						t.Errorf("asked %d times in %d s of trouble, want one a second", asked, seconds)
					}
					c.heal()
					healed := time.Now()
					got := c.within(t, 3*time.Second)
					if late := got.at.Sub(healed); late > 1500*time.Millisecond || got.Kind != KindPreempt || got.Withdrawn {
						t.Errorf("heard %+v %v after recovery, want preempt within 1.5s", got, late)
					}
					if good, trouble := c.events(); trouble != "" || time.Since(good) > time.Second {
						t.Errorf("health after recovery: good %v ago, trouble %q", time.Since(good), trouble)
					}
					if open := c.open.Load(); open != 0 {
						t.Errorf("%d questions wait for an answer after recovery", open)
					}
					c.Remove(id)
					c.within(t, 3*time.Second)
				}
			})
		})
	}
}

func TestAzureTroubleKeepsTheBelief(t *testing.T) {
	for name, begin := range azureTroubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			azureBubble(t, AzureConfig{Metadata: Metadata{Log: slog.New(slog.NewTextHandler(&log, nil))}}, func(t *testing.T, c *azureCloud) {
				c.listen(t)
				id := c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(10 * time.Minute)})
				first := c.within(t, 3*time.Second)
				begin(c)
				c.silent(t, time.Minute)
				c.heal()
				c.silent(t, time.Minute) // still listed: nothing new

				c.Remove(id)
				if got := c.within(t, 3*time.Second); !got.Withdrawn || !got.same(first.Notice) {
					t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
				}
			})
			if got := strings.Count(log.String(), "\n"); got != 2 {
				t.Errorf("logged %d lines for one outage, want its start and its end:\n%s", got, log.String())
			}
		})
	}
}

func TestAzureBrokenEventOfOthersIsNoTrouble(t *testing.T) {
	for _, broken := range []string{
		`{"Resources":["pool_7"]}`, `{"EventId":7,"Resources":["pool_7"]}`, `{"Resources":["pool_7"],"EventId":{},"EventType":[]}`, `{"Resources":[]}`,
	} {
		azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
			c.show(1, broken+`,{"EventId":"a","EventType":"Preempt","Resources":["pool_24"],"DurationInSeconds":"9","Description":7,"EventSource":null}`)
			c.listen(t)
			if got := c.within(t, time.Minute); got.Kind != KindPreempt || got.Reason != "Azure Preempt" {
				t.Errorf("%s: heard %+v, want our event", broken, got)
			}
		})
	}
}

// An unreadable event in a list takes nothing from the others, and an event that is missing beside it may still stand.
func TestAzureUnreadableEventHidesNothing(t *testing.T) {
	const good = `{"EventId":"g","EventType":"Preempt","Resources":["pool_24"]}`
	for name, bad := range map[string]string{
		"no id":    `{"EventType":"Freeze","Resources":["pool_24"]}`,
		"no type":  `{"EventId":"b","Resources":["pool_24"]}`,
		"no names": `{"EventId":"b","EventType":"Freeze"}`,
		"null":     `null`,
		"text":     `"Freeze"`,
		"twice":    `{"EventId":"g","EventType":"Freeze","Resources":["pool_24"]}`,
	} {
		for _, events := range []string{good + "," + bad, bad + "," + good} {
			t.Run(name, func(t *testing.T) {
				azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
					c.listen(t)
					c.silent(t, time.Minute)
					says(`{"DocumentIncarnation":2,"Events":[` + events + `]}`)(c)
					if got := c.within(t, 2*time.Second); got.Kind != KindPreempt || got.Withdrawn {
						t.Errorf("heard %+v, want preempt", got)
					}
					if trouble := c.source.Health()[0].Trouble; trouble == "" {
						t.Error("nothing is said of the event that cannot be read")
					}
					if name != "twice" {
						says(`{"DocumentIncarnation":3,"Events":[` + bad + `]}`)(c)
						c.silent(t, time.Minute)
					}
					c.heal()
					if got := c.within(t, 2*time.Second); got.Kind != KindPreempt || !got.Withdrawn {
						t.Errorf("heard %+v, want the withdrawal", got)
					}
				})
			})
		}
	}
	t.Run("no count", func(t *testing.T) {
		azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
			c.listen(t)
			says(`{"Events":[` + good + `]}`)(c)
			if got := c.within(t, 2*time.Second); got.Kind != KindPreempt {
				t.Errorf("heard %+v, want preempt", got)
			}
		})
	})
}

func TestAzureEventThatIsOverIsNone(t *testing.T) {
	for status, want := range map[string]int{"Scheduled": 1, "Started": 1, "Completed": 0, "Canceled": 0, "SomethingNew": 1} {
		list := fmt.Sprintf(`{"DocumentIncarnation":1,"Events":[{"EventId":"a","EventType":"Preempt","Resources":["pool_24"],"EventStatus":%q}]}`, status)
		if got, err := readAzureEvents([]byte(list), "pool_24"); err != nil || len(got) != want {
			t.Errorf("%s: got %+v, %v, want %d events", status, got, err, want)
		}
	}
}

func TestAzureListIsBounded(t *testing.T) {
	for n, want := range map[int]bool{maxEvents: true, maxEvents + 1: false} {
		list := `{"DocumentIncarnation":1,"Events":[` + strings.TrimPrefix(strings.Repeat(`,{"Resources":["a"]}`, n), ",") + `]}`
		if _, err := readAzureEvents([]byte(list), "pool_24"); (err == nil) != want {
			t.Errorf("%d events: got %v", n, err)
		}
	}
}

// TestAzureFirstQuestionTurnsTheEventsOn is about a service that was never asked: only a question that waits arms it.
func TestAzureFirstQuestionTurnsTheEventsOn(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.Arm(2 * time.Minute)
		c.listen(t)
		c.silent(t, time.Minute)
		if i, err := c.source.Instance(t.Context()); err != nil || i.ID != azureMachine.ID {
			t.Errorf("got %+v, %v, want the instance described meanwhile", i, err)
		}
		c.Schedule(azurefake.Event{Type: "Preempt", NotBefore: time.Now().Add(90 * time.Second)})
		c.silent(t, 59*time.Second)
		if got := c.within(t, time.Minute); got.Kind != KindPreempt || got.at.Sub(got.Deadline) > -29*time.Second {
			t.Errorf("heard %+v, want preempt two minutes after the start", got)
		}

		// The service forgets a machine that has not asked for a day, and may do so for other reasons.
		c.Arm(2 * time.Minute)
		c.silent(t, 2*time.Minute+time.Second)
		c.Schedule(azurefake.Event{Type: "Redeploy", NotBefore: time.Now().Add(10 * time.Minute)})
		if got := c.within(t, 2*time.Second); got.Kind != KindRedeploy {
			t.Errorf("heard %+v, want redeploy", got)
		}
	})
}

func TestAzureSlowServiceIsHeard(t *testing.T) {
	azureBubble(t, AzureConfig{Name: "pool_24"}, func(t *testing.T, c *azureCloud) {
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(1500 * time.Millisecond) // no poll gets its answer in time
			c.Service.ServeHTTP(w, r)
		})
		stop := c.listen(t)
		c.silent(t, time.Minute)
		for range 20 {
			shown := time.Now()
			id := c.Schedule(azurefake.Event{Type: "Preempt", NotBefore: shown.Add(30 * time.Second)})
			if got := c.within(t, 5*time.Second); got.Kind != KindPreempt || got.at.Sub(shown) > 4*time.Second {
				t.Errorf("heard %+v after %v, want preempt", got, got.at.Sub(shown))
			}
			c.Remove(id)
			c.within(t, 5070*time.Millisecond)
		}
		stop()
		time.Sleep(2 * time.Second) // the handlers sleep on after their clients are gone
	})
}

// The endpoint that knows the machine's name is slower than that of the events.
func TestAzureNameThatComesSlowlyIsLearnt(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.onlyCompute(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(500 * time.Millisecond)
			c.Service.ServeHTTP(w, r)
		})
		stop := c.listen(t)
		c.silent(t, time.Minute)
		shown := time.Now()
		c.Schedule(azurefake.Event{Type: "Preempt", NotBefore: shown.Add(30 * time.Second)})
		if got := c.within(t, 10*time.Second); got.Kind != KindPreempt || got.at.Sub(shown) > 2*time.Second {
			t.Errorf("heard %+v after %v, want preempt", got, got.at.Sub(shown))
		}
		stop()
		time.Sleep(time.Second) // the handlers sleep on after their clients are gone
	})
}

func TestAzureLeavesNothingBehind(t *testing.T) {
	azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
		c.failWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		stop := c.listen(t)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if open := c.open.Load(); open != 0 || c.source.paths[0].late != nil {
			t.Errorf("%d questions wait for an answer after the end", open)
		}
	})
}

func TestAzurePollsAreTold(t *testing.T) {
	results := map[string]int{}
	polled := func(p Poll) { results[p.Source+" "+p.Path+" "+p.Result]++ }
	azureBubble(t, AzureConfig{Metadata: Metadata{Polled: polled}}, func(t *testing.T, c *azureCloud) {
		stop := c.listen(t)
		time.Sleep(9500 * time.Millisecond)
		c.Fail(http.StatusGone)
		time.Sleep(10 * time.Second)
		stop()
	})
	want := map[string]int{"azure scheduledevents ok": 10, "azure scheduledevents 410": 10, "azure instance/compute ok": 1}
	if fmt.Sprint(results) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", results, want)
	}
}

func FuzzAzureEvents(f *testing.F) {
	for _, body := range []string{
		`{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"Scheduled","EventType":"Freeze",` +
			`"ResourceType":"VirtualMachine","Resources":["WestNO_0","pool_24"],"NotBefore":"Mon, 11 Apr 2026 22:26:58 GMT","Description":"x",` +
			`"EventSource":"Platform","DurationInSeconds":5}]}`,
		`{"DocumentIncarnation":3,"Events":[{"EventId":"a","EventStatus":"Started","EventType":"Preempt","Resources":["POOL_24"],"NotBefore":""}]}`,
		`{"DocumentIncarnation":1,"Events":[]}`, `{"Events":[{}]}`, `[]`, `null`, ``,
	} {
		f.Add([]byte(body), []byte(body))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		a, err := NewAzure(AzureConfig{Name: "pool_24", Metadata: Metadata{Log: slog.New(slog.DiscardHandler)}})
		if err != nil {
			t.Fatal(err)
		}
		b := a.paths[0]
		for range 2 {
			for _, body := range [][]byte{first, second} {
				news, _ := b.hear(body, true, nil, now) // the readable part of an incomplete list counts
				for _, n := range news {
					bad := n.Kind.severity() < 0 || !b.owns(n.ID) || n.Source != SourceAzure || n.SeenAt.IsZero() || len(n.Reason) > 4*300
					if bad || n.Kind.stance() == StanceDrain && n.Deadline.IsZero() {
						t.Errorf("%q: heard %+v", body, n)
					}
				}
				if again, _ := b.hear(body, true, nil, now.Add(time.Millisecond)); len(again) > 0 {
					t.Errorf("%q: heard %+v again", body, again)
				}
				now = now.Add(time.Second)
			}
		}
	})
}
