package heartbeat

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// If several silences end before anything receives from Back, it has the longest of them.
func TestBackHasTheLongestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{back: make(chan time.Duration, 1)}
		c.answered()
		<-c.Back()
		for _, silence := range []time.Duration{time.Second, time.Minute, 2 * time.Second} {
			c.beatFailed(errors.New("cut off"))
			time.Sleep(silence)
			c.answered()
		}
		if got := <-c.Back(); got != time.Minute {
			t.Errorf("no beat was answered for %s, want a minute", got)
		}
	})
}
