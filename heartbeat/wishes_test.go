package heartbeat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

func directive(id string, remaining time.Duration) *api.Directive {
	return &api.Directive{Decommission: id, Remaining: durationpb.New(remaining), Reason: "r"}
}

// next fails the test unless a directive with this id ("": nil) comes within the time.
func next(t *testing.T, c *Client, within time.Duration, id string) *api.Directive {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	d, err := c.NextDirective(ctx)
	if err != nil || d.GetDecommission() != id {
		t.Fatalf("got directive %v, %v; want %q", d, err, id)
	}
	return d
}

func none(t *testing.T, c *Client, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if d, err := c.NextDirective(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got directive %v, %v; want none within %v", d, err, within)
	}
}

func TestDirectiveIsGivenOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{}
		c := beating(t, co)
		none(t, c, 10*time.Second)

		// A coordinator counts the remaining time down, so the deadline stays the same.
		deadline := time.Now().Add(10 * time.Minute)
		co.set(func() {
			co.onBeat = func(context.Context) error {
				co.set(func() { co.directive = directive("d-1", time.Until(deadline)) })
				return nil
			}
		})
		if left := next(t, c, 5*time.Second, "d-1").Remaining.AsDuration(); (left - time.Until(deadline)).Abs() > 2*time.Second {
			t.Errorf("got %v remaining, want %v", left, time.Until(deadline))
		}
		none(t, c, 5*time.Minute)

		co.set(func() { deadline = deadline.Add(-4 * time.Minute) })
		if left := next(t, c, 5*time.Second, "d-1").Remaining.AsDuration(); (left - time.Until(deadline)).Abs() > 2*time.Second {
			t.Errorf("got %v remaining after the time limit changed, want %v", left, time.Until(deadline))
		}
		none(t, c, 30*time.Second)

		co.set(func() { co.onBeat, co.directive = nil, &api.Directive{Decommission: "d-1"} })
		if d := next(t, c, 5*time.Second, "d-1"); d.Remaining != nil {
			t.Errorf("got %v remaining after the limit was lifted, want none", d.Remaining)
		}
		co.set(func() { co.directive = &api.Directive{Decommission: "d-2"} })
		next(t, c, 5*time.Second, "d-2")
		co.set(func() { co.directive = nil })
		next(t, c, 5*time.Second, "")
		none(t, c, time.Minute)
		co.set(func() { co.directive = &api.Directive{Decommission: "d-2"} })
		next(t, c, 5*time.Second, "d-2") // ordered again after it ended: a new directive
	})
}

func TestDirectiveSurvivesLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{directive: directive("d-1", time.Minute)}
		lost := 0
		co.onBeat = func(context.Context) error {
			if lost++; lost <= 3 {
				return errUnavailable
			}
			return nil
		}
		c := beating(t, co)
		next(t, c, time.Minute, "d-1")
	})
}

func TestDirectiveThatWasMissedIsNotGivenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{directive: directive("d-1", time.Hour)}
		c := beating(t, co)
		time.Sleep(5 * time.Second) // nobody asks
		co.set(func() { co.directive = nil })
		time.Sleep(5 * time.Second)
		none(t, c, time.Minute)
	})
}

func TestRemainingTimeIsAsOfTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, co := newNetwork(), &coordinator{directive: directive("d-1", time.Minute)}
		stop := n.serve(t, addrA, co)
		c := newClient(t, config(n, addrA))
		start(t, c)
		time.Sleep(500 * time.Millisecond)
		stop()
		time.Sleep(40 * time.Second)
		if left := next(t, c, time.Second, "d-1").Remaining.AsDuration(); left > 20*time.Second || left < 19*time.Second {
			t.Errorf("got %v remaining 40 s after a minute was told, want 20 s", left)
		}
	})
}

func TestForgottenNodeKeepsItsDirective(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{directive: &api.Directive{Decommission: "d-1"}}
		c := beating(t, co)
		next(t, c, 5*time.Second, "d-1")
		co.set(func() { co.known = false })
		none(t, c, 10*time.Second) // "register" says nothing of what is wished
	})
}

func TestNoDirectiveIsLostBetweenManyChangesAndASlowCaller(t *testing.T) {
	w := new(wishes)
	for _, id := range []string{"d-1", "", "d-2", "d-1", "", "d-3"} {
		w.hear(&api.Directive{Decommission: id})
	}
	if d, err := w.next(t.Context()); err != nil || d.GetDecommission() != "d-3" {
		t.Errorf("got %v, %v; want what is wished now, d-3", d, err)
	}
}
