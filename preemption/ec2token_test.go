package preemption

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenThatCannotBeHadIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.source.Believe(Notice{Source: SourceEC2, ID: pathAction, Kind: KindStop})
		c.failWith(http.NotFound) // also to the PUT: there never was a token
		c.listen(t)
		c.silent(t, time.Minute)
		if _, trouble := c.action(); !strings.Contains(trouble, "404") {
			t.Errorf("trouble is %q, want it to tell of the 404", trouble)
		}
	})
}

func TestLostTokenCostsNoPoll(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		time.Sleep(500 * time.Millisecond)
		for range 20 {
			c.ForgetTokens()
			c.silent(t, time.Second)
			if good, trouble := c.action(); trouble != "" || time.Since(good) > time.Second {
				t.Fatalf("last good poll %v ago, trouble %q, want one each second", time.Since(good), trouble)
			}
		}
		if got := c.puts.Load(); got < 20 || got > 25 {
			t.Errorf("asked for %d tokens, want one for each that was lost", got)
		}
	})
}

// TestNoPollWaitsForAToken runs for twelve hours on a service that is slow with each token. A token is good for six hours,
// so some must be renewed on the way.
func TestNoPollWaitsForAToken(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.onToken(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(300 * time.Millisecond)
			c.Service.ServeHTTP(w, r)
		})
		var mu sync.Mutex
		var slowest time.Duration
		var bad []Poll
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler), Poll: 20 * time.Second, Polled: func(p Poll) {
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, p.Took)
			if p.Result != "ok" {
				bad = append(bad, p)
			}
		}}})
		c.listen(t)
		c.silent(t, 10*time.Second)
		mu.Lock()
		slowest = 0 // the first poll must fetch its token itself
		mu.Unlock()
		c.silent(t, 12*time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if slowest > 0 || len(bad) > 0 {
			t.Errorf("a poll took %v, and these were not answered: %+v, want each to find a token", slowest, bad)
		}
		if got := c.puts.Load(); got != 4 && got != 5 {
			t.Errorf("asked for %d tokens in twelve hours, want one for each three hours", got)
		}
	})
}

func TestRenewalThatFailsCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		var mu sync.Mutex
		var late, bad int
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler), Polled: func(p Poll) {
			mu.Lock()
			defer mu.Unlock()
			if p.Took > 0 {
				late++
			}
			if p.Result != "ok" {
				bad++
			}
		}}})
		c.listen(t)
		c.silent(t, time.Minute)
		c.source.metadata.session.renewAt = time.Now() // no race: the source sleeps until its next poll
		c.TooFar(true)                                 // so that renewing hangs until it is given up
		before, polls := c.puts.Load(), c.polls.Load()
		c.silent(t, 10*time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if late > 0 || bad > 0 {
			t.Errorf("%d polls were late and %d failed while the old token was good", late, bad)
		}
		if got := c.puts.Load() - before; got < 5 || got > 11 {
			t.Errorf("tried %d times in ten minutes, want once a minute", got)
		}
		if got := c.polls.Load() - polls; got != 600 {
			t.Errorf("%d polls in ten minutes, want one a second", got)
		}
	})
}

func TestStormOfRefusalsIsNoStormOfTokens(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusServiceUnavailable} {
		bubble(t, func(t *testing.T, c *cloud) {
			c.listen(t)
			c.silent(t, 500*time.Millisecond)
			c.Fail(status)
			before := c.puts.Load()
			c.silent(t, 10*time.Minute)
			if got := c.puts.Load() - before; got > 600 {
				t.Errorf("%d: asked for %d tokens in 600 polls, want at most one for each", status, got)
			}
		})
	}
}

// TestSDKAsksForNoTokens keeps the SDK's requests for tokens away from the service: it would make one every five minutes, by a wall
// clock that may be set.
func TestSDKAsksForNoTokens(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.listen(t)
		c.silent(t, time.Hour)
		if got := c.puts.Load(); got != 1 {
			t.Errorf("asked for %d tokens in an hour, want one", got)
		}
	})
}

func TestVersion1NeedsLeave(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		c.TooFar(true)
		c.AllowV1(true)
		c.Interrupt("stop", time.Now().Add(2*time.Minute))
		c.listen(t)
		c.silent(t, time.Minute)
		if _, trouble := c.action(); trouble == "" {
			t.Error("a service that gives no token is well informed, though version 1 was not allowed")
		}
	})
}

func TestVersion1WhereNoTokenCanBeHad(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, slog.New(slog.DiscardHandler))
		c.TooFar(true)
		c.AllowV1(true)
		c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.NewTextHandler(&log, nil))}, AllowV1: true})
		if i, err := c.source.Instance(t.Context()); err != nil || i.ID == "" {
			t.Errorf("instance is %+v, %v, want it known at the first question", i, err)
		}
		c.listen(t)
		c.silent(t, 10*time.Minute)
		if got := c.puts.Load(); got > 12 {
			t.Errorf("asked for %d tokens in ten minutes, want one a minute, between polls", got)
		}
		c.Interrupt("terminate", time.Now().Add(2*time.Minute))
		shown := time.Now()
		if got := c.within(t, 5*time.Second); got.at.Sub(shown) > time.Second {
			t.Errorf("heard after %v, want within one poll", got.at.Sub(shown))
		}
		c.Withdraw()
		c.within(t, 5*time.Second)

		c.AllowV1(false) // from now on the service insists, and tokens can be had
		c.TooFar(false)
		c.silent(t, 2*time.Second)
		if good, trouble := c.action(); trouble != "" || time.Since(good) > time.Second {
			t.Errorf("last good poll %v ago, trouble %q, want a token to be used", time.Since(good), trouble)
		}
	})
	if got := strings.Count(log.String(), "version 1"); got != 1 {
		t.Errorf("warned of version 1 %d times, want once:\n%s", got, log.String())
	}
}

func TestWhatIsNoTokenIsNotSent(t *testing.T) {
	for name, answer := range map[string]string{"empty": "", "two lines": "a\nb", "a page": "<html> </html>"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				c.onToken(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(answer)) })
				c.listen(t)
				c.silent(t, 5*time.Second)
				if _, trouble := c.action(); !strings.Contains(trouble, "which is none") || c.polls.Load() > 0 {
					t.Errorf("trouble is %q after %d questions, want none to be asked", trouble, c.polls.Load())
				}
			})
		})
	}
}
