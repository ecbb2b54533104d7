package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// tell makes a coordinator give these events, one stream for each turn, and then err.
func (o *coordinator) tell(asked *[]string, err error, turns ...[]*api.Event) {
	o.events = func(r *api.EventsRequest, stream grpc.ServerStreamingServer[api.Event]) error {
		*asked = append(*asked, api.PlaceAfter(r).String())
		if len(turns) == 0 {
			return err
		}
		for _, e := range turns[0] {
			if err := stream.Send(e); err != nil {
				return err
			}
		}
		turns = turns[1:]
		return status.Error(codes.Unavailable, "the coordinator stops")
	}
}

func TestEventsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a")
		c.elect("a")
		var asked []string
		c.there["a"].tell(&asked, status.Error(codes.PermissionDenied, "no longer yours"),
			[]*api.Event{{Term: 2, Index: 5}, {Term: 2, Index: 5, Soft: 1}},
			nil,
			[]*api.Event{{Term: 2, Index: 5}, {Term: 3, Index: 5, Soft: 1}, {Term: 3, Index: 6}}, // the first was given before
			[]*api.Event{{Type: Gap, Index: 1}, {Term: 1, Index: 2}},                             // another history
		)
		conn, _ := c.conn(t, "a")
		var got []string
		var failed error
		for e, err := range conn.Events(t.Context(), Place{Term: 2, Index: 4}, Filter{}) {
			if err != nil {
				failed = err
				continue
			}
			got = append(got, strings.TrimSpace(e.Type+" "+e.Place.String()))
		}
		if want := "[2.5 2.5.1 3.5.1 3.6 Gap 1 1.2]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		if want := "[2.4 2.5.1 2.5.1 3.6 1.2]"; fmt.Sprint(asked) != want {
			t.Errorf("asked after %v, want %s", asked, want)
		}
		if status.Code(failed) != codes.PermissionDenied || !strings.Contains(failed.Error(), "after 1.2") {
			t.Errorf("got %v, want the refusal as the last", failed)
		}
	})
}

// The absence of all coordinators is told once, and the loop goes on when it is over.
func TestEventsOutliveAnAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a", "b")
		conn, _ := c.conn(t, "a", "b")
		const away = 20 * time.Second
		go func() {
			time.Sleep(away)
			c.elect("b")
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told, began := 0, time.Now()
		for e, err := range conn.Events(ctx, Place{}, Filter{}) {
			if err != nil {
				told++
				continue
			}
			if e.Node != "b" {
				t.Errorf("got %+v, want b's", e)
			}
			cancel()
		}
		if told != 1 {
			t.Errorf("told %d times of %s without a leader, want once", told, away)
		}
		if took := time.Since(began); took > away+3*longestPause {
			t.Errorf("went on after %s, want soon after %s", took, away)
		}
		synctest.Wait()
	})
}

// Leaving the loop ends the stream, and no attempt follows.
func TestEventsEndWithTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCity(t, "a")
		c.elect("a")
		ended := make(chan struct{})
		c.there["a"].events = func(_ *api.EventsRequest, stream grpc.ServerStreamingServer[api.Event]) error {
			defer close(ended) // a second call would panic
			if err := stream.Send(&api.Event{Term: 1, Index: 1}); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		}
		conn, _ := c.conn(t, "a")
		for range conn.Events(t.Context(), Place{}, Filter{}) {
			break
		}
		<-ended
		time.Sleep(time.Minute)
	})
}
