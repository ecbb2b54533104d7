package preemption

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/gcefake"
)

// gceTroubles are the ways in which a metadata server fails, each set on a healthy cloud and taken off by heal. Requests
// that wait for a change are caught in the middle.
var gceTroubles = map[string]func(*gceCloud){
	"503":  func(c *gceCloud) { c.Fail(http.StatusServiceUnavailable) },
	"500":  func(c *gceCloud) { c.Fail(http.StatusInternalServerError) },
	"429":  func(c *gceCloud) { c.Fail(http.StatusTooManyRequests) },
	"hang": func(c *gceCloud) { c.failWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }) },
	"refused": func(c *gceCloud) {
		c.refuse.Store(true)
		c.hangUp()
	},
	"reset": func(c *gceCloud) {
		c.failWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	},
	"redirect": func(c *gceCloud) {
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			if r.URL.Path == "/elsewhere" {
				w.WriteHeader(http.StatusNotFound) // not Google's server: it says nothing about this machine
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		})
	},
	"no content": func(c *gceCloud) {
		c.failWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			w.WriteHeader(http.StatusNoContent)
		})
	},
	"garbage":         func(c *gceCloud) { c.failWith(fromGoogle("<html>?")) },
	"captive portal":  func(c *gceCloud) { c.failWith(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "FALSE") }) },
	"somebody's 404":  func(c *gceCloud) { c.failWith(http.NotFound) },
	"endless body":    func(c *gceCloud) { c.failWith(flood(http.StatusOK)) },
	"endless 404":     func(c *gceCloud) { c.failWith(flood(http.StatusNotFound)) },
	"endless 503":     func(c *gceCloud) { c.failWith(flood(http.StatusServiceUnavailable)) },
	"trickling body":  func(c *gceCloud) { c.failWith(trickle) },
	"body breaks off": func(c *gceCloud) { c.failWith(breakingOff) },
}

func breakingOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	w.Header().Set("Content-Length", "6")
	fmt.Fprint(w, "FALSE")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestGCENoticeInTheMiddleOfTroubleIsHeardSoonAfter(t *testing.T) {
	for name, begin := range gceTroubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.listen(t)
				c.silent(t, time.Minute)
				// One long outage, then shorter ones that end at every phase of a poll.
				for round := range 5 {
					half := longOutage(name) / 2
					if round > 0 {
						half = 20*time.Second + time.Duration(round)*231*time.Millisecond
					}
					c.asked()
					begin(c)
					c.silent(t, half)
					c.Preempt()
					c.silent(t, half)
					if c.health(t, keyPreempted).Trouble == "" {
						t.Error("health is good in the middle of trouble")
					}
					if total, byPath := c.asked(); total > int(2*half.Seconds())*4+250 {
						t.Errorf("asked %d times in %v: %v", total, 2*half, byPath)
					}
					c.heal()
					healed := time.Now()
					got := c.within(t, 3*time.Second)
					if late := got.at.Sub(healed); late > 1500*time.Millisecond || got.Kind != KindPreempt || got.Withdrawn {
						t.Errorf("heard %+v %v after recovery, want preempt within 1.5s", got, late)
					}
					if h := c.health(t, keyPreempted); h.Trouble != "" || time.Since(h.LastGood) > 4*time.Second {
						t.Errorf("health after recovery: good %v ago, trouble %q", time.Since(h.LastGood), h.Trouble)
					}
					c.Withdraw()
					c.within(t, 3*time.Second)
				}
			})
		})
	}
}

func TestGCETroubleKeepsTheBelief(t *testing.T) {
	for name, begin := range gceTroubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.listen(t)
				c.Preempt()
				first := c.within(t, time.Second)
				begin(c)
				c.silent(t, time.Minute)
				c.heal()
				c.silent(t, time.Minute) // still shown: nothing new

				c.Withdraw()
				if got := c.within(t, time.Second); !got.Withdrawn || !got.same(first.Notice) {
					t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
				}
			})
		})
	}
}

// A server that restarts may have no keys for some seconds. What it said before stands, with the time that it had.
func TestGCEKeysThatAreAwayForAMomentTakeNothingBack(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.silent(t, time.Minute)
		for name, show := range map[string]func(){
			"preempted": c.Preempt, "maintenance": func() { c.Maintenance("TERMINATE_ON_HOST_MAINTENANCE") }, "stop": func() { c.Stop(10 * time.Minute) },
		} {
			show()
			c.within(t, 2*time.Second)
			for range 5 {
				c.failWith(noKeys)
				c.silent(t, 15*time.Second)
				c.heal()
				c.silent(t, 5*time.Second)
			}
			c.failWith(noKeys)
			c.silent(t, 45*time.Second)
			if got := c.within(t, 45*time.Second); !got.Withdrawn {
				t.Errorf("%s: heard %+v, want it withdrawn when the key has been gone for a minute", name, got)
			}
			c.Withdraw()
			c.heal()
			c.silent(t, 15*time.Second)
		}
	})
}

func noKeys(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	w.WriteHeader(http.StatusNotFound)
}

// A server that restarts may err for minutes between two moments without keys: nobody knows whether it had them then.
func TestGCETroubleIsNoTimeWithoutKeys(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.Maintenance("TERMINATE_ON_HOST_MAINTENANCE")
		c.within(t, 2*time.Second)
		for range 3 {
			c.failWith(noKeys)
			c.silent(t, 10*time.Second)
			c.failWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
			c.silent(t, 2*time.Minute)
			c.failWith(noKeys)
			c.silent(t, 10*time.Second)
			c.heal()
			c.silent(t, 20*time.Second)
		}
		c.failWith(noKeys)
		if got := c.within(t, 90*time.Second); !got.Withdrawn {
			t.Errorf("heard %+v, want it withdrawn when the key has been gone for a minute", got)
		}
	})
}

// A server may take seconds for each answer: a notice is heard once it has answered.
func TestGCESlowServerIsHeard(t *testing.T) {
	for _, takes := range []time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			gceBubble(t, func(t *testing.T, c *gceCloud) {
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(takes)
					c.Service.ServeHTTP(w, r)
				})
				stop := c.listen(t)
				c.silent(t, time.Minute)
				for range 9 {
					c.Preempt()
					got := c.within(t, 2*takes+2*time.Second) // the question that just missed it, and the next one
					if got.Kind != KindPreempt {
						t.Errorf("heard %+v, want preempt", got)
					}
					c.Withdraw()
					c.within(t, 2*takes+2*time.Second)
				}
				stop()
				time.Sleep(2 * takes) // the handlers sleep on after their clients are gone
			})
		})
	}
}

// 403 is no outage, and ends by somebody's hand.
func TestGCERefusalByRuleIsAskedLessOften(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.Preempt()
		c.within(t, time.Second)
		c.Fail(http.StatusForbidden)
		c.silent(t, 5*time.Minute)
		c.asked()
		c.silent(t, 5*time.Minute)
		if total, byPath := c.asked(); total > 300 {
			t.Errorf("asked %d times in 5 minutes, want once in 5s for each key: %v", total, byPath)
		}
		c.heal()
		c.Withdraw()
		if got := c.within(t, 10*time.Second); !got.Withdrawn {
			t.Errorf("heard %+v, want the withdrawal", got)
		}
	})
}

// A hanging GET whose connection died without a word is made good by the plain read.
func TestGCELostHangingGETs(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		for range 50 {
			c.silent(t, 7*time.Second)
			c.lose()
			c.Preempt()
			lost := time.Now()
			if got := c.within(t, 12*time.Second); got.at.Sub(lost) > 11*time.Second {
				t.Errorf("heard after %v, want it from the next plain read", got.at.Sub(lost))
			}
			c.Withdraw()
			c.within(t, time.Second) // by a hanging GET again
		}
		if c.mostOpen > 8 {
			t.Errorf("%d connections open at once, want 8 at most", c.mostOpen)
		}
	})
}

func TestGCEIdleSourceAsksLittleAndLeavesNothingBehind(t *testing.T) {
	for name, instance := range map[string]gcefake.Instance{"spot": spot, "no graceful shutdown": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newGCECloud(t, slog.New(slog.DiscardHandler), instance)
				stop := c.listen(t)
				const span = 20 * time.Minute
				c.silent(t, span)
				total, byPath := c.asked()
				rate := float64(total) / span.Seconds()
				t.Logf("%.2f requests a second, %d connections at most: %v", rate, c.mostOpen, byPath)
				if rate >= 1 || c.mostOpen > 8 {
					t.Errorf("%.2f requests a second over %d connections, want less than 1 over 8 at most", rate, c.mostOpen)
				}
				stop()
				synctest.Wait()
				if c.mu.Lock(); len(c.conns) != 0 {
					t.Errorf("%d connections are open after the end", len(c.conns))
				}
				c.mu.Unlock()
			})
		})
	}
}

// flapper is a cloud whose metadata service can be made to fail.
type flapper interface {
	Fail(status int)
	heal()
	silent(t *testing.T, d time.Duration)
}

// failThenFlap makes a service fail once for long, and then again and again for moments. Each is logged completely after
// settles; once is how much was logged of the first.
func failThenFlap(t *testing.T, c flapper, log *bytes.Buffer, settles time.Duration) (once int) {
	c.silent(t, time.Minute)
	c.Fail(http.StatusServiceUnavailable)
	c.silent(t, 10*time.Minute)
	c.heal()
	c.silent(t, settles)
	once = log.Len()
	for range 100 { // well for a moment does not end the trouble
		c.Fail(http.StatusServiceUnavailable)
		c.silent(t, 7*time.Second)
		c.heal()
		c.silent(t, 20*time.Second)
	}
	c.silent(t, settles)
	return once
}

// Some servers answer a hanging GET at once, some refuse it, some have no ETags. None makes us spin, and with none do we miss
// anything.
func TestGCEServersThatDoNotWait(t *testing.T) {
	for name, alter := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"answers at once": func(_ http.ResponseWriter, r *http.Request) bool { r.URL.RawQuery = ""; return false },
		"refuses": func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.RawQuery, "wait_for_change") {
				w.WriteHeader(http.StatusBadRequest)
				return true
			}
			return false
		},
		"hangs up": func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.RawQuery, "wait_for_change") {
				panic(http.ErrAbortHandler)
			}
			return false
		},
		"talks nonsense": func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.RawQuery, "wait_for_change") {
				fromGoogle("<html>?")(w, r)
				return true
			}
			return false
		},
		"another ETag each time": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Etag", fmt.Sprint(time.Now().UnixNano()))
			return false
		},
		"no ETag": func(w http.ResponseWriter, r *http.Request) bool { w.Header().Set("Etag", ""); return false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			synctest.Test(t, func(t *testing.T) {
				c := newGCECloud(t, slog.New(slog.NewTextHandler(&log, nil)), spot)
				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					if alter(w, r) {
						return
					}
					answer := httptest.NewRecorder()
					c.Service.ServeHTTP(answer, r)
					for name, values := range answer.Header() {
						if _, has := w.Header()[name]; !has {
							w.Header()[name] = values
						}
					}
					w.WriteHeader(answer.Code)
					w.Write(answer.Body.Bytes())
				})
				c.listen(t)
				c.silent(t, time.Minute)
				c.asked()
				c.silent(t, 3*time.Minute)
				total, byPath := c.asked()
				rate := float64(total) / 180
				t.Logf("%.2f requests a second: %v", rate, byPath)
				if rate > 10 {
					t.Errorf("%.1f requests a second, want a few: %v", rate, byPath)
				}
				if h := c.health(t, keyPreempted); h.Trouble != "" || time.Since(h.LastGood) > 2*time.Second {
					t.Errorf("health %+v, want it good", h)
				}
				for range 20 {
					c.Preempt()
					shown := time.Now()
					if got := c.within(t, 1700*time.Millisecond); got.at.Sub(shown) > 1500*time.Millisecond || got.Withdrawn {
						t.Errorf("heard %+v after %v", got, got.at.Sub(shown))
					}
					c.Withdraw()
					c.within(t, 1900*time.Millisecond)
				}
			})
			fails := name == "refuses" || name == "hangs up" || name == "talks nonsense"
			if lines := strings.Count(log.String(), "\n"); lines != 0 && !fails || lines != 3 && fails {
				t.Errorf("logged %d lines, want one for each of three keys if hanging GETs fail:\n%s", lines, log.String())
			}
		})
	}
}

func TestGCETroubleIsLoggedWhenItStartsAndEnds(t *testing.T) {
	var log bytes.Buffer
	var once int
	synctest.Test(t, func(t *testing.T) {
		c := newGCECloud(t, slog.New(slog.NewTextHandler(&log, nil)), spot)
		c.listen(t)
		once = failThenFlap(t, c, &log, 4*time.Minute)
	})
	if got := strings.Count(log.String()[once:], "path="+keyPreempted+" "); got != 2 {
		t.Errorf("logged %d lines of a service that fails and answers in turns, want 2:\n%s", got, log.String()[once:])
	}
	// Four keys, each with a start and an end.
	if got := strings.Count(log.String()[:once], "\n"); got != 8 {
		t.Errorf("logged %d lines for one outage, want 8:\n%s", got, log.String())
	}
}

func TestGCEPollsAreCounted(t *testing.T) {
	gceBubble(t, func(t *testing.T, c *gceCloud) {
		c.listen(t)
		c.silent(t, 5*time.Minute)
		c.Fail(http.StatusServiceUnavailable)
		c.silent(t, 5*time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range []string{keyPreempted, keyMaintenance, keyStopState, keyUpcoming} {
			good, bad := c.polls[Poll{Source: SourceGCE, Path: key, Result: "ok"}], c.polls[Poll{Source: SourceGCE, Path: key, Result: "503"}]
			if good < 4 || bad < 4 {
				t.Errorf("%s: counted %d good polls and %d answers of 503", key, good, bad)
			}
		}
		if len(c.polls) != 8 {
			t.Errorf("polls have the labels %v, want a key and a result each", c.polls)
		}
	})
}
