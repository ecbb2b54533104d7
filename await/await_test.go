package await

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !Sleep(ctx, 20*time.Second) || time.Since(began) != 20*time.Second {
			t.Errorf("slept %s, want 20s", time.Since(began))
		}
		if !Sleep(ctx, -time.Second) || time.Since(began) != 20*time.Second {
			t.Errorf("slept %s more for a time that has passed", time.Since(began)-20*time.Second)
		}
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("it slept on for %s after the end of its context", time.Since(began)-time.Minute)
		}
		if Sleep(ctx, 0) {
			t.Error("a context that has ended counts as one that lasts")
		}
	})
}

func TestNewsWakesAllWhoWaited(t *testing.T) {
	var n News
	n.Tell() // to nobody
	one, other := n.Next(), n.Next()
	select {
	case <-one:
		t.Error("it was told before there was news")
	default:
	}
	n.Tell()
	<-one
	<-other
	select {
	case <-n.Next():
		t.Error("old news counts as news")
	default:
	}
}

func TestMarkNeverWaits(t *testing.T) {
	c := make(chan struct{}, 1)
	Mark(c)
	Mark(c)
	if len(c) != 1 {
		t.Errorf("got %d marks, want one", len(c))
	}
}
