package preemption

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Of two scripts that give the same notice with different deadlines, before the first is heard, each is told the incident,
// which has the earlier one.
func TestEachWhoSaysTheSameNoticeIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := newMachine(t).start(t), NewManual()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		soon := time.Now().Add(time.Minute)
		answers := make(chan Incident, 2)
		for _, deadline := range []time.Time{soon.Add(time.Hour), soon} {
			go func() {
				i, err := Say(ctx, m, k, Notice{Deadline: deadline})
				if err != nil {
					t.Errorf("the notice by %s: %v", deadline.Format(time.TimeOnly), err)
				}
				answers <- i
			}()
			synctest.Wait()
		}
		n, err := m.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		join(t, k, n)
		for range 2 {
			if i := <-answers; !i.Deadline().Equal(soon) {
				t.Errorf("the answer names %s, want %s", i.Deadline(), soon)
			}
		}
	})
}

// A notice that is taken back before it joined is answered so.
func TestSayOfWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := newMachine(t).start(t), NewManual()
		go func() { time.Sleep(time.Second); m.Withdraw("never mind") }()
		if _, err := Say(t.Context(), m, k, Notice{}); err != ErrTakenBack {
			t.Errorf("got %v, want %v", err, ErrTakenBack)
		}
	})
}
