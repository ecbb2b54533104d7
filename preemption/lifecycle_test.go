package preemption

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// scaling is a pretend Auto Scaling that speaks the Query protocol.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CompleteLifecycleAction.html
type scaling struct {
	asked  []url.Values
	answer func(w http.ResponseWriter) bool // in place of success, if it returns true
}

const credentials = `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"secret","Token":"session",` +
	`"Expiration":"2099-01-01T00:00:00Z"}`

// scaled gives a cloud an Auto Scaling beside its metadata service, a role to ask it with, and a source that knows a hook.
func scaled(t *testing.T, c *cloud, l LifecycleHook) *scaling {
	s := &scaling{answer: func(http.ResponseWriter) bool { return false }}
	c.failWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "autoscaling.test" {
			c.Service.ServeHTTP(w, r)
			return
		}
		auth := r.Header.Get("Authorization")
		if !strings.Contains(auth, "Credential=AKIDEXAMPLE/") || !strings.Contains(auth, "/eu-west-3/autoscaling/") {
			t.Errorf("signed as %q, want by the instance's role for eu-west-3", auth)
		}
		if err := r.ParseForm(); err != nil {
			t.Errorf("form: %v", err)
		}
		s.asked = append(s.asked, r.PostForm)
		if !s.answer(w) {
			fmt.Fprint(w, `<CompleteLifecycleActionResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">`+
				`<CompleteLifecycleActionResult/><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></CompleteLifecycleActionResponse>`)
		}
	})
	c.Show("placement/region", "eu-west-3")
	c.Show("iam/security-credentials/", "lifeboat")
	c.Show("iam/security-credentials/lifeboat", credentials)
	c.open(t, EC2Config{Metadata: Metadata{Log: slog.New(slog.DiscardHandler)}, Lifecycle: l, AutoScaling: "http://autoscaling.test"})
	return s
}

// refusal answers with an error of AWS's.
func refusal(w http.ResponseWriter, status int, code, message string) bool {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error><Type>Sender</Type>`+
		`<Code>%s</Code><Message>%s</Message></Error><RequestId>r</RequestId></ErrorResponse>`, code, message)
	return true
}

var scaleIn = Notice{Source: SourceEC2, ID: pathTarget, Kind: KindScaleIn}

func TestReleaseCompletesTheHook(t *testing.T) {
	for name, row := range map[string]struct {
		group, tag string
	}{"group by configuration": {group: "workers"}, "group by tag": {tag: "workers"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				s := scaled(t, c, LifecycleHook{Name: "leave", Group: row.group})
				c.Show(groupTag, row.tag)
				if err := c.source.Release(t.Context(), scaleIn); err != nil {
					t.Fatal(err)
				}
				if len(s.asked) != 1 {
					t.Fatalf("asked %d times, want once", len(s.asked))
				}
				for key, want := range map[string]string{
					"Action": "CompleteLifecycleAction", "AutoScalingGroupName": "workers", "LifecycleHookName": "leave",
					"InstanceId": "i-0123456789abcdef0", "LifecycleActionResult": "CONTINUE",
				} {
					if got := s.asked[0].Get(key); got != want {
						t.Errorf("%s: got %q, want %q", key, got, want)
					}
				}
			})
		})
	}
}

func TestReleaseOfAnythingElseIsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		s := scaled(t, c, LifecycleHook{Name: "leave", Group: "workers"})
		for _, n := range []Notice{
			{Source: SourceEC2, ID: pathAction, Kind: KindTerminate},
			{Source: SourceRehearsal, ID: pathTarget, Kind: KindScaleIn}, // a rehearsal
		} {
			if err := c.source.Release(t.Context(), n); err != nil || len(s.asked) > 0 {
				t.Errorf("%+v: asked %d times, %v, want nothing", n, len(s.asked), err)
			}
		}
		s = scaled(t, c, LifecycleHook{Group: "workers"})
		if err := c.source.Release(t.Context(), scaleIn); err != nil || len(s.asked) > 0 {
			t.Errorf("without a hook: asked %d times, %v, want nothing", len(s.asked), err)
		}
	})
}

func TestReleaseReportsWhatAWSSays(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		s := scaled(t, c, LifecycleHook{Name: "leave", Group: "workers"})
		s.answer = func(w http.ResponseWriter) bool {
			return refusal(w, http.StatusBadRequest, "ValidationError", "No active Lifecycle Action found with instance ID i-0")
		}
		began := time.Now()
		err := c.source.Release(t.Context(), scaleIn)
		if err == nil || !strings.Contains(err.Error(), "No active Lifecycle Action found with instance ID i-0") {
			t.Errorf("got %v, want AWS's message", err)
		}
		if !strings.Contains(err.Error(), "leave") || !strings.Contains(err.Error(), "workers") {
			t.Errorf("got %v, want hook and group named", err)
		}
		if len(s.asked) != 1 || time.Since(began) > 0 {
			t.Errorf("asked %d times in %v, want once: another try ends the same", len(s.asked), time.Since(began))
		}
	})
}

// A node that has nothing to carry is done before its group waits for it.
func TestReleaseBeforeTheGroupWaits(t *testing.T) {
	for name, row := range map[string]struct {
		waits time.Duration
		told  bool
	}{"soon": {7 * time.Second, true}, "never": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				s := scaled(t, c, LifecycleHook{Name: "leave", Group: "workers"})
				began := time.Now()
				s.answer = func(w http.ResponseWriter) bool {
					return time.Since(began) < row.waits && refusal(w, http.StatusBadRequest, "ValidationError", "No active Lifecycle Action found with instance ID i-0")
				}
				n := scaleIn
				n.SeenAt = began
				if err := c.source.Release(t.Context(), n); (err == nil) != row.told || time.Since(began) > waitsWithin+retryAfter {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

func TestReleaseTriesAgain(t *testing.T) {
	var tries atomic.Int32
	for name, trouble := range map[string]func(c *cloud, s *scaling){
		"AWS is down": func(_ *cloud, s *scaling) {
			s.answer = func(w http.ResponseWriter) bool {
				return tries.Add(1) < 8 && refusal(w, http.StatusServiceUnavailable, "InternalFailure", "later")
			}
		},
		"AWS is busy": func(_ *cloud, s *scaling) {
			s.answer = func(w http.ResponseWriter) bool {
				return tries.Add(1) < 8 && refusal(w, http.StatusBadRequest, "Throttling", "Rate exceeded")
			}
		},
		"metadata fail": func(c *cloud, _ *scaling) {
			c.Fail(http.StatusServiceUnavailable)
			time.AfterFunc(7*time.Second, func() { c.Fail(0) })
		},
		"metadata hang": func(c *cloud, _ *scaling) {
			c.TooFar(true)
			time.AfterFunc(7*time.Second, func() { c.TooFar(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cloud) {
				tries.Store(0)
				s := scaled(t, c, LifecycleHook{Name: "leave", Group: "workers"})
				trouble(c, s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.source.Release(ctx, scaleIn); err != nil || len(s.asked) == 0 {
					t.Errorf("got %v after asking %d times, want success in the end", err, len(s.asked))
				}
			})
		})
	}
}

// The hook is completed even if the metadata service takes seconds for each answer.
func TestReleaseAsksASlowService(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		s := scaled(t, c, LifecycleHook{Name: "drain"})
		c.Show(groupTag, "workers")
		quick := *c.trouble.Load()
		c.failWith(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			quick(w, r)
		})
		n := Notice{Source: SourceEC2, ID: pathTarget, Kind: KindScaleIn}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.source.Release(ctx, n); err != nil || len(s.asked) != 1 {
			t.Errorf("got %v, and asked %v", err, s.asked)
		}
		c.silent(t, 10*time.Second) // the handlers sleep on after their clients are gone
	})
}

func TestReleaseEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		s := scaled(t, c, LifecycleHook{Name: "leave", Group: "workers"})
		s.answer = func(w http.ResponseWriter) bool {
			return refusal(w, http.StatusInternalServerError, "InternalFailure", "later")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.source.Release(ctx, scaleIn); err == nil || time.Since(began) != 25*time.Second {
			t.Errorf("got %v after %v, want why not after 25s", err, time.Since(began))
		}
	})
}

func TestReleaseSaysWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cloud) {
		s := scaled(t, c, LifecycleHook{Name: "leave"})
		began := time.Now()
		if err := c.source.Release(t.Context(), scaleIn); err == nil || !strings.Contains(err.Error(), "group has to be named") {
			t.Errorf("without a group: got %v", err)
		}
		c.Show(groupTag, "workers")
		c.Show("iam/security-credentials/", "")
		if err := c.source.Release(t.Context(), scaleIn); err == nil || !strings.Contains(err.Error(), "role") {
			t.Errorf("without a role: got %v", err)
		}
		if len(s.asked) > 0 || time.Since(began) > 0 {
			t.Errorf("asked %d times in %v, want never and at once", len(s.asked), time.Since(began))
		}
	})
}
