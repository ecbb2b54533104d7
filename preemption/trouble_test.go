package preemption

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// troubles are the ways in which a metadata service fails, each set on a healthy cloud and taken off by heal.
var troubles = map[string]func(*cloud){
	"503":       func(c *cloud) { c.Fail(http.StatusServiceUnavailable) },
	"429":       func(c *cloud) { c.Fail(http.StatusTooManyRequests) },
	"403":       func(c *cloud) { c.Fail(http.StatusForbidden) },
	"401 storm": func(c *cloud) { c.Fail(http.StatusUnauthorized) },
	"hang":      func(c *cloud) { c.failWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }) },
	"refused":   func(c *cloud) { c.refuse.Store(true); c.source.metadata.transport.CloseIdleConnections() },
	"redirect": func(c *cloud) {
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				http.NotFound(w, r) // not the service: it says nothing about this machine
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		})
	},
	"no body": func(c *cloud) { c.onlyData(func(w http.ResponseWriter, _ *http.Request) {}) },
	"garbage": func(c *cloud) { c.onlyData(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>?") }) },
	"no content": func(c *cloud) {
		c.onlyData(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	},
	"unknown action": func(c *cloud) {
		c.onlyData(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"action":"none","time":"2000-01-01T00:00:00Z"}`)
		})
	},
	"bad time": func(c *cloud) {
		c.onlyData(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"action":"stop","time":"soon"}`) })
	},
	"endless body":   func(c *cloud) { c.failWith(flood(http.StatusOK)) },
	"endless 404":    func(c *cloud) { c.onlyData(flood(http.StatusNotFound)) },
	"trickling body": func(c *cloud) { c.onlyData(trickle) },
	"slow body":      func(c *cloud) { c.onlyData(slow) },
	"cut-off body":   func(c *cloud) { c.onlyData(cutOff) },
	"reset":          func(c *cloud) { c.failWith(reset) },
	"no token": func(c *cloud) { // one hop too far away to get one
		c.ForgetTokens()
		c.TooFar(true)
	},
}

// onlyData answers requests for tokens as usual, and the rest with h.
func (c *cloud) onlyData(h http.HandlerFunc) {
	c.failWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			c.Service.ServeHTTP(w, r)
			return
		}
		h(w, r)
	})
}

// flood sends a body without an end, and trickle one that comes slowly. With their headers each cloud's client reads them.
func flood(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(status)
		for chunk := bytes.Repeat([]byte("x"), 32<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func trickle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	for {
		if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// slow sends a notice byte by byte, and its end too late.
func slow(w http.ResponseWriter, _ *http.Request) {
	for _, char := range `{"action":"stop","time":"2000-01-01T00:10:00Z"}` {
		fmt.Fprint(w, string(char))
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// cutOff ends in the middle of a body that would be whole.
func cutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	fmt.Fprint(w, `{"action":"stop","time":"2000-01-01T00:10:00Z"}`)
}

// reset takes the question and hangs up.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

// longOutage is how long the longest outage of a kind lasts: ten minutes for those that clouds are known for, and for the
// others what the cost of the race detector allows.
func longOutage(name string) time.Duration {
	switch name {
	case "503", "429", "hang", "refused", "reset", "401 storm", "slow body", "trickling body":
		return 10 * time.Minute
	case "endless body", "endless 404", "endless 503":
		return 30 * time.Second // each answer costs as much as a hundred others
	default:
		return 2 * time.Minute
	}
}

func TestNoticeInTheMiddleOfTroubleIsHeardSoonAfter(t *testing.T) {
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, c *cloud) {
				c.listen(t)
				c.silent(t, time.Minute)
				// One long outage, then short ones that end at every phase of a poll.
				for round := range 9 {
					half := longOutage(name) / 2
					if round > 0 {
						half = 6*time.Second + time.Duration(round)*65*time.Millisecond
					}
					begin(c)
					c.silent(t, half)
					c.Interrupt("terminate", time.Now().Add(2*half))
					c.silent(t, half)
					if _, trouble := c.action(); trouble == "" {
						t.Error("health is good in the middle of trouble")
					}
					c.heal()
					healed := time.Now()
					got := c.within(t, 3*time.Second)
					if late := got.at.Sub(healed); late > 1500*time.Millisecond || got.Kind != KindTerminate || got.Withdrawn {
						t.Errorf("heard %+v %v after recovery, want terminate within 1.5s", got, late)
					}
					if good, trouble := c.action(); trouble != "" || time.Since(good) > time.Second {
						t.Errorf("health after recovery: good %v ago, trouble %q", time.Since(good), trouble)
					}
					c.Withdraw()
					c.within(t, 3*time.Second)
				}
			})
		})
	}
}

func TestTroubleKeepsTheBelief(t *testing.T) {
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, c *cloud) {
				c.listen(t)
				c.Interrupt("terminate", time.Now().Add(2*time.Minute))
				first := c.within(t, 3*time.Second)
				begin(c)
				c.silent(t, time.Minute)
				c.heal()
				c.silent(t, time.Minute) // still shown: nothing new

				c.Withdraw()
				if got := c.within(t, 3*time.Second); !got.Withdrawn || !got.same(first.Notice) {
					t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
				}
			})
		})
	}
}

// A service may take seconds for each answer: a notice is heard once it has answered, even if another path hangs, or no
// token was had yet.
func TestSlowServiceIsHeard(t *testing.T) {
	for _, takes := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				slowly := func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(takes)
					c.Service.ServeHTTP(w, r)
				}
				c.failWith(slowly)
				c.listen(t)
				c.silent(t, time.Minute)
				for range 9 {
					shown := time.Now()
					c.Interrupt("terminate", shown.Add(2*time.Minute))
					most := 2*takes + 2*time.Second // the question that just missed it, and the next one
					if got := c.within(t, most); got.Kind != KindTerminate {
						t.Errorf("heard %+v, want terminate", got)
					}
					c.Withdraw()
					c.within(t, 3*takes+4*time.Second)
				}
				c.ForgetTokens()
				c.Interrupt("stop", time.Now().Add(2*time.Minute))
				if got := c.within(t, 4*takes+4*time.Second); got.Kind != KindStop {
					t.Errorf("heard %+v, want stop", got)
				}
				c.Withdraw()
				c.within(t, 3*takes+4*time.Second)

				c.failWith(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, pathAction) {
						<-r.Context().Done()
						return
					}
					slowly(w, r)
				})
				c.Lifecycle("Terminated")
				if got := c.within(t, 2*takes+5*time.Second); got.Kind != KindScaleIn {
					t.Errorf("heard %+v while another path hangs, want scale-in", got)
				}
				c.heal()
				c.silent(t, slowLimit+takes) // the handlers sleep on after their clients are gone
			})
		})
	}
}

// TestTroubleHasAName keeps the values of a metric's label few.
func TestTroubleHasAName(t *testing.T) {
	want := map[string]string{
		"503": "503", "429": "429", "403": "403", "401 storm": "401", "redirect": "302", "hang": "timeout", "no token": "timeout",
		"trickling body": "timeout", "slow body": "timeout", "refused": "refused", "reset": "reset", "cut-off body": "reset",
		"garbage": "garbage", "no body": "garbage", "no content": "garbage", "unknown action": "garbage", "bad time": "garbage",
		"endless body": "garbage", "endless 404": "garbage",
	}
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				results := make(chan string, 100)
				c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler), Polled: func(p Poll) {
					if p.Path == pathAction {
						results <- p.Result
					}
				}}})
				begin(c)
				c.listen(t)
				c.silent(t, 10*time.Second)
				if len(results) < 10 {
					t.Errorf("counted %d polls in ten seconds, want one a second", len(results))
				}
				for range len(results) {
					if got := <-results; got != want[name] {
						t.Errorf("counted as %s, want %s", got, want[name])
					}
				}
				c.heal()
				c.silent(t, 7*time.Second) // the path that is asked every five seconds is answered, and the service notices, too
			})
		})
	}
}
