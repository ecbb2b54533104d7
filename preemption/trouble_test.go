package preemption

import (
	"bytes"
	"fmt"
	"net/http"
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
				http.NotFound(w, r) // whoever answers there, it says nothing about this machine
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
}

// onlyData lets tokens through and answers the rest with h.
func (c *cloud) onlyData(h http.HandlerFunc) {
	c.failWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			c.Service.ServeHTTP(w, r)
			return
		}
		h(w, r)
	})
}

func flood(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
		w.WriteHeader(status)
		for chunk := bytes.Repeat([]byte("x"), 4096); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func trickle(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
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
					half := 5 * time.Minute
					if round > 0 {
						half = 6*time.Second + time.Duration(round)*65*time.Millisecond
					}
					begin(c)
					c.silent(t, half)
					c.Interrupt("terminate", time.Now().Add(2*half))
					c.silent(t, half)
					if _, trouble := c.source.Health(); trouble == "" {
						t.Error("health is good in the middle of trouble")
					}
					c.heal()
					healed := time.Now()
					got := c.within(t, 3*time.Second)
					if late := got.at.Sub(healed); late > 1500*time.Millisecond || got.Kind != KindTerminate || got.Withdrawn {
						t.Errorf("heard %+v %v after recovery, want terminate within 1.5s", got, late)
					}
					if good, trouble := c.source.Health(); trouble != "" || time.Since(good) > time.Second {
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
				c.silent(t, time.Minute) // it is still there: nothing new

				c.Withdraw()
				if got := c.within(t, 3*time.Second); !got.Withdrawn || !got.same(first.Notice) {
					t.Errorf("heard %+v, want the withdrawal of %+v", got, first)
				}
			})
		})
	}
}
