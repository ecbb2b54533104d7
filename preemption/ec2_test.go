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
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

func TestNoticeIsHeardWithinOnePoll(t *testing.T) {
	for _, action := range []string{"terminate", "stop"} {
		t.Run(action, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				c.listen(t)
				c.silent(t, 2*time.Minute)
				shown := time.Now()
				deadline := shown.Add(2 * time.Minute)
				c.Interrupt(action, deadline)
				got := c.within(t, time.Minute)
				if got.Source != SourceEC2 || got.ID == "" || got.Kind != Kind(action) || !got.Deadline.Equal(deadline) || got.Withdrawn {
					t.Errorf("heard %+v, want %s by %v", got, action, deadline)
				}
				if late := got.at.Sub(shown); late > time.Second || !got.SeenAt.Equal(got.at) {
					t.Errorf("heard after %v, seen at %v, want within one poll", late, got.SeenAt)
				}
			})
		})
	}
}

func TestNoticeIsHeardHalfASecondLateOnAverage(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		const rounds = 200
		var sum time.Duration
		for phase := range rounds {
			time.Sleep(time.Duration(phase*7%rounds) * 5 * time.Millisecond)
			synctest.Wait()
			shown := time.Now()
			c.Interrupt("terminate", shown.Add(2*time.Minute))
			late := c.within(t, 2*time.Second).at.Sub(shown)
			if late > 1100*time.Millisecond {
				t.Fatalf("phase %d: heard after %v", phase, late)
			}
			sum += late
			c.Withdraw()
			c.within(t, 3*time.Second)
		}
		if mean := sum / rounds; mean > 550*time.Millisecond {
			t.Errorf("heard after %v on average, want at most 550ms", mean)
		}
	})
}

func TestHibernationLeavesNoTime(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		c.Interrupt("hibernate", time.Now().Add(2*time.Minute))
		got := c.within(t, 30*time.Second)
		if got.Kind != KindHibernate || !got.Deadline.Equal(got.SeenAt) {
			t.Errorf("heard %+v, want hibernate, due at once", got)
		}
	})
}

func TestRebalanceIsAdviceWithoutADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		c.silent(t, time.Minute)
		c.Rebalance()
		shown := time.Now()
		got := c.within(t, 10*time.Second)
		if got.Kind != KindRebalance || !got.Deadline.IsZero() || got.at.Sub(shown) > rebalanceEvery {
			t.Errorf("heard %+v after %v, want rebalance within %v", got, got.at.Sub(shown), rebalanceEvery)
		}
		c.silent(t, 2*time.Minute)

		c.Interrupt("terminate", time.Now().Add(2*time.Minute))
		next := c.within(t, 30*time.Second)
		if next.Kind != KindTerminate || next.same(got.Notice) {
			t.Errorf("heard %+v, want a terminate notice of its own", next)
		}
	})
}

func TestGroupsStateIsANoticeWhereTheDisksGo(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		for _, state := range []string{"", "InService", "Standby", "Detached", "Warmed:Running"} {
			c.Lifecycle(state)
			c.silent(t, time.Minute)
		}
		for _, state := range []string{"Terminated", "Warmed:Terminated", "Warmed:Stopped", "Warmed:Hibernated"} {
			c.Lifecycle(state)
			shown := time.Now()
			got := c.within(t, time.Minute)
			if got.Kind != KindScaleIn || got.Withdrawn || !got.Deadline.IsZero() || got.at.Sub(shown) > targetEvery {
				t.Errorf("%s: heard %+v after %v, want scale-in without a deadline within %v", state, got, got.at.Sub(shown), targetEvery)
			}
			c.Lifecycle("Pending:Whatever") // an unknown state, which says nothing
			c.silent(t, time.Minute)
			c.Lifecycle("InService")
			if back := c.within(t, time.Minute); !back.Withdrawn || !back.same(got.Notice) {
				t.Errorf("after %s and back: heard %+v, want the withdrawal", state, back)
			}
		}
	})
}

func TestHookSetsTheDeadlineOfAScaleIn(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler)}, Lifecycle: LifecycleHook{Timeout: 10 * time.Minute}})
		c.listen(t)
		c.Lifecycle("Terminated")
		got := c.within(t, 15*time.Minute) // and it does not move
		if !got.Deadline.Equal(got.SeenAt.Add(10 * time.Minute)) {
			t.Errorf("seen at %v, due at %v, want ten minutes between", got.SeenAt, got.Deadline)
		}
	})
}

func TestWithdrawalNeedsTwoAnswersInARow(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		deadline := time.Now().Add(time.Hour)
		c.Interrupt("terminate", deadline)
		c.within(t, 2500*time.Millisecond)

		for range 3 { // one "none" and one failure, over and over
			c.Withdraw()
			c.silent(t, time.Second)
			c.Fail(http.StatusServiceUnavailable)
			c.silent(t, time.Second)
			c.Fail(0)
			c.silent(t, 0)
		}
		c.Interrupt("terminate", deadline)
		c.silent(t, 5*time.Second)

		c.Withdraw()
		gone := time.Now()
		got := c.within(t, 10*time.Second)
		if !got.Withdrawn || got.at.Sub(gone) > 2*time.Second || got.Kind != KindTerminate {
			t.Errorf("heard %+v after %v, want the withdrawal after two polls", got, got.at.Sub(gone))
		}
		c.Interrupt("stop", time.Now().Add(2*time.Minute))
		if again := c.within(t, 10*time.Second); again.Withdrawn || again.Kind != KindStop || !again.same(got.Notice) {
			t.Errorf("heard %+v, want a stop notice under the same id", again)
		}
	})
}

func TestMovingTimeIsOneNotice(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		move := func() { c.Interrupt("terminate", time.Now().Add(2*time.Minute)) } // as amazon-ec2-metadata-mock does
		c.before.Store(&move)
		c.listen(t)
		c.within(t, 10*time.Minute)
		if got := c.polls.Load(); got < 590 {
			t.Errorf("%d polls in ten minutes, want one a second", got)
		}
	})
}

func TestEarlierDeadlineAndOtherKindAreNews(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		deadline := time.Now().Add(2 * time.Minute)
		c.Interrupt("stop", deadline)
		first := c.within(t, 3*time.Second)

		c.Interrupt("stop", deadline.Add(-time.Second))
		c.silent(t, 3*time.Second)
		c.Interrupt("stop", deadline.Add(time.Minute))
		c.silent(t, 3*time.Second)

		c.Interrupt("stop", deadline.Add(-30*time.Second))
		got := c.within(t, 3*time.Second)
		if !got.same(first.Notice) || !got.Deadline.Equal(deadline.Add(-30*time.Second)) || !got.SeenAt.Equal(first.SeenAt) {
			t.Errorf("heard %+v, want the same notice 30s earlier", got)
		}
		c.Interrupt("terminate", deadline)
		got = c.within(t, 3*time.Second)
		if !got.same(first.Notice) || got.Kind != KindTerminate || !got.Deadline.Equal(deadline.Add(-30*time.Second)) {
			t.Errorf("heard %+v, want terminate with the earlier deadline kept", got)
		}
		c.Interrupt("terminate", time.Now().Add(-time.Hour)) // it did not happen: no reason to leave
		c.silent(t, 3*time.Second)
	})
}

func TestStaleTimeIsIgnored(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, slog.New(slog.NewTextHandler(&log, nil)))
		c.Interrupt("terminate", time.Now().Add(-61*time.Second))
		c.listen(t)
		c.silent(t, 2*time.Minute)
		c.Withdraw()
		c.silent(t, time.Minute)

		c.Interrupt("terminate", time.Now().Add(-30*time.Second)) // late, but in earnest
		c.within(t, 10*time.Minute)                               // it is not withdrawn for its age
	})
	if got := strings.Count(log.String(), "stale notice"); got != 1 {
		t.Errorf("logged %d stale notices, want 1:\n%s", got, log.String())
	}
}

// A host that has found no time server yet has the two minutes all the same, and no more. A time that has long passed by
// both clocks has passed.
func TestTimeIsTheServicesWhereTheClocksDiffer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"this host's is ahead": -4 * time.Minute, "this host's is behind": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
					c.ServeHTTP(w, r)
				})
				c.Interrupt("terminate", time.Now().Add(ahead-10*time.Minute))
				c.listen(t)
				c.silent(t, time.Minute)
				c.Withdraw()
				c.silent(t, 10*time.Second)
				c.Interrupt("terminate", time.Now().Add(ahead+2*time.Minute))
				got := c.within(t, 2*time.Second)
				if left := got.Deadline.Sub(got.at); left < 115*time.Second || left > 122*time.Second || !strings.Contains(got.Reason, "clock") {
					t.Errorf("%s are left of %+v, want two minutes", left, got.Notice)
				}
				c.silent(t, time.Minute)
			})
		})
	}
}

// The same goes for a time that would be possible by this host's clock, too.
func TestTimeIsTheServicesWhereTheClocksDifferALittle(t *testing.T) {
	for name, row := range map[string]struct {
		action              string
		ahead, lead, leaves time.Duration
	}{
		"this host's is ahead":  {"terminate", -100 * time.Second, 2 * time.Minute, 2 * time.Minute},
		"this host's is behind": {"terminate", 100 * time.Second, 45 * time.Second, 45 * time.Second}, // heard late: the agent has just started
		"it begins at once":     {"hibernate", -10 * time.Minute, 2 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", time.Now().Add(row.ahead).UTC().Format(http.TimeFormat))
					c.ServeHTTP(w, r)
				})
				c.Interrupt(row.action, time.Now().Add(row.ahead+row.lead))
				c.listen(t)
				got := c.within(t, 2*time.Second)
				if left := got.Deadline.Sub(got.at); (left - row.leaves).Abs() > 2*time.Second {
					t.Errorf("%s are left of %+v, want %s", left, got.Notice, row.leaves)
				}
				c.silent(t, 30*time.Second)
			})
		})
	}
}

// After a reclaim fell through, EC2 shows its time until the next one replaces it.
func TestInterruptionAfterOneThatCameToNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		c.Interrupt("terminate", time.Now().Add(2*time.Minute))
		c.within(t, 2*time.Second)
		c.silent(t, time.Hour)
		deadline := time.Now().Add(2 * time.Minute)
		c.Interrupt("terminate", deadline)
		if got := c.within(t, 2*time.Second); got.Withdrawn || !got.Deadline.Equal(deadline) || !got.SeenAt.Equal(got.at) {
			t.Errorf("heard %+v, want another notice, by %v", got, deadline)
		}
	})
}

func TestBelievedNoticeIsNotGivenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		deadline := time.Now().Add(-10 * time.Minute) // stale by now, had it not been believed
		known := Notice{Source: SourceEC2, ID: pathAction, Kind: KindStop, Deadline: deadline, SeenAt: deadline.Add(-2 * time.Minute)}
		c.source.Believe(known, Notice{Source: SourceManual, ID: SourceManual, Kind: KindManual})
		c.Interrupt("stop", deadline)
		c.listen(t)
		c.silent(t, time.Minute)
		c.Withdraw()
		if got := c.within(t, 5*time.Second); !got.Withdrawn || !got.same(known) || !got.SeenAt.Equal(known.SeenAt) {
			t.Errorf("heard %+v, want the withdrawal of %+v", got, known)
		}
	})
}

func TestTroubleIsLoggedWhenItStartsAndEnds(t *testing.T) {
	var log bytes.Buffer
	var once int
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, slog.New(slog.NewTextHandler(&log, nil)))
		c.listen(t)
		once = failThenFlap(t, c, &log, 3*time.Minute)
	})
	if got := strings.Count(log.String()[once:], "path="+pathAction+" "); got != 2 {
		t.Errorf("logged %d lines of a service that fails and answers in turns, want 2:\n%s", got, log.String()[once:])
	}
	// Four paths, each with a start and an end.
	if got := strings.Count(log.String()[:once], "\n"); got != 8 {
		t.Errorf("logged %d lines for one outage, want 8:\n%s", got, log.String())
	}
}

func TestInstanceIsDescribed(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		got, err := c.source.Instance(t.Context())
		want := Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"}
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		c.onlyData(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "../../etc") })
		if got, err := c.source.Instance(t.Context()); err == nil {
			t.Errorf("got %+v, want an error for a name with slashes", got)
		}
		c.onlyData(http.NotFound)
		if got, err := c.source.Instance(t.Context()); err != nil || got != (Instance{}) {
			t.Errorf("got %+v, %v, want nothing known", got, err)
		}
	})
}

// A message about trouble names the question once, and not again in each layer of the error.
func TestTroubleIsSaidInFewWords(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(c *cloud)
		want string
	}{
		"nobody listens":     {func(c *cloud) { c.refuse.Store(true) }, "get a metadata token: dial tcp: connection refused"},
		"tokens are refused": {func(c *cloud) { c.Fail(401) }, "a new metadata token is refused: answered 401 Unauthorized"},
		"a body that does not end": {func(c *cloud) {
			c.onlyData(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) })
		}, "body is longer than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, cloud *cloud) {
				c.fail(cloud)
				cloud.listen(t)
				cloud.silent(t, 5*time.Second)
				if _, trouble := cloud.action(); trouble != c.want {
					t.Errorf("got %q, want %q", trouble, c.want)
				}
			})
		})
	}
}

// TestOverTCP is the one test here that leaves the bubble: the same source on its own network.
func TestOverTCP(t *testing.T) {
	fake := ec2fake.New(ec2fake.Instance{})
	fake.Interrupt("terminate", time.Now().Add(2*time.Minute))
	server := httptest.NewServer(fake)
	defer server.Close()
	source, err := NewEC2(EC2Config{Metadata: Metadata{Endpoint: server.URL, Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer source.metadata.transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n, err := source.Next(ctx); err != nil || n.Kind != KindTerminate {
		t.Errorf("got %+v, %v, want terminate", n, err)
	}
	if source.metadata.transport.Proxy != nil {
		t.Error("a proxy may come between us and a link-local address")
	}
}

func TestBadEndpointIsRefused(t *testing.T) {
	for _, endpoint := range []string{"169.254.169.254", "ftp://x", "http://", "http://%zz"} {
		if _, err := NewEC2(EC2Config{Metadata: Metadata{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler)}}); err == nil {
			t.Errorf("endpoint %q was taken", endpoint)
		}
	}
}

func FuzzMetadataBodies(f *testing.F) {
	for _, body := range []string{
		`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`, `{"action":"hibernate","time":"0001-01-01T00:00:00Z"}`,
		`{"noticeTime": "2020-10-27T08:22:00Z"}`, `{"action":"stop","time":"2017-09-18T08:22:00+23:59"}`, `[]`, `null`, ``,
		"Terminated", "Warmed:Stopped\n", "InService",
		`[{"Code":"instance-stop","EventId":"a","State":"active","NotBefore":"21 Jan 2029 09:00:43 GMT"},{"State":"completed"},7]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		for path, read := range map[string]func([]byte, time.Time) ([]Notice, error){
			pathAction: readAction, pathRebalance: readRebalance, pathTarget: LifecycleHook{}.readTarget, pathScheduled: readScheduled,
		} {
			b := newBelief(slog.New(slog.DiscardHandler), SourceEC2, path, time.Second, 1, read)
			news, err := b.hear(body, true, nil, now)
			if err != nil && len(news) > 0 && path != pathScheduled {
				t.Errorf("%q: heard %+v in spite of %v", body, news, err)
			}
			for _, n := range news {
				if n.Withdrawn || n.Kind.severity() < 0 || !b.owns(n.ID) || n.Source != SourceEC2 || len(n.Reason) > 1000 {
					t.Errorf("%q: heard %+v", body, n)
				}
			}
		}
	})
}
