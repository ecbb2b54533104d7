package heartbeat

import (
	"fmt"
	"time"
)

// fenceFor is how long replies of lower terms are refused after one of a higher term: twice as long as a call may be under
// way, so every reply of a deposed leader has arrived or has been given up by then. It is not longer, because a coordinator
// that was restored from a snapshot, or made anew, counts its terms from one again and must be heard. Nor need it be: a
// leader that was cut off stops answering before another can be elected.
const fenceFor = 2 * answerLimit

// fence refuses the replies of a deposed leader: one that it wrote before it was stopped may arrive when it wakes, after
// what its successor said.
type fence struct {
	term  uint64 // the highest heard
	heard time.Time
}

// admit notes the term of a reply, or returns why the reply is refused. A coordinator that does not tell its term has term
// 0.
func (f *fence) admit(term uint64, now time.Time) error {
	if term == 0 {
		return nil
	}
	if term < f.term && now.Sub(f.heard) < fenceFor {
		return fmt.Errorf("it answers as the leader of term %d, and one of term %d was heard %s ago", term, f.term, now.Sub(f.heard).Round(time.Millisecond))
	}
	f.term, f.heard = term, now
	return nil
}
