package coordinator

import "testing"

// The lead is handed over and comes back by an election, all before the attempt to hand it over gives up: the term in which this
// coordinator leads now is not replaced by the one before it, or it would lead and answer nobody.
func TestResumedTermDoesNotReplaceTheNext(t *testing.T) {
	o := newOffice(0)
	o.enter(t.Context(), 3)
	number := o.quit()
	o.enter(t.Context(), 5)
	o.resume(number)
	if term, _ := o.now(5); term == nil {
		t.Error("the coordinator has lost the term that it was elected for")
	}
	o.resume(o.quit())
	if term, _ := o.now(5); term == nil {
		t.Error("a term that no other followed did not go on")
	}
	o.quit()
	o.resume(o.quit())
	if term, _ := o.now(5); term != nil {
		t.Error("a term that somebody else ended goes on")
	}
}
