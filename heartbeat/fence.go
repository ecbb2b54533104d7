package heartbeat

import (
	"fmt"
	"time"
)

// fenceFor is how long the word of a higher term stands against those of lower ones: twice as long as a call may be under
// way, so what a deposed leader still had to say has arrived or has been given up. Not longer, for a coordinator that was
// restored from a snapshot, or made anew, counts its terms from one again, and must be heard. Nor need it be: a leader that
// was cut off stops answering before another can be elected.
const fenceFor = 2 * answerLimit

// fence keeps out the words of a leader that was deposed: a reply that it wrote before it was stopped may arrive when it
// wakes, after what its successor said.
type fence struct {
	term  uint64 // the highest heard
	heard time.Time
}

// admit takes note of the term of a reply, or says why it is not to be believed. Term 0 is of a coordinator that does not
// say its term.
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
