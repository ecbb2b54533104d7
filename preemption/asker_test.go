package preemption

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A service that takes 3 s for each answer is counted with 3 s, in whichever poll its answers come.
func TestLateAnswerIsNotAQuickOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 3 * time.Second
		a := asker[int]{limit: slowLimit, ask: func(ctx context.Context) (int, error) {
			select {
			case <-time.After(slow):
				return 7, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		defer a.giveUp()
		answers := 0
		for range 20 {
			begun := time.Now()
			poll, cancel := context.WithTimeout(t.Context(), askLimit)
			said, took, err := a.get(poll)
			cancel()
			switch {
			case err != nil && took != askLimit:
				t.Errorf("no answer came after %v, want %v", took, askLimit)
			case err == nil && (said != 7 || took != slow):
				t.Errorf("got %d after %v, want 7 after %v", said, took, slow)
			case err == nil:
				answers++
			}
			time.Sleep(time.Until(begun.Add(time.Second)))
		}
		if answers < 3 {
			t.Errorf("got %d answers in 20 s", answers)
		}
	})
}
