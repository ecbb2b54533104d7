package heartbeat

import (
	"slices"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// The apps that hold a node up are those of the newest reply, even if its directive is no news. Before the first reply they
// are not known.
func TestAppsAreOfTheNewestReply(t *testing.T) {
	w := new(wishes)
	w.believe(&api.Directive{Decommission: "dec-1"})
	if _, heard := w.elsewhere(); heard {
		t.Error("a journal's word was taken for a reply's")
	}
	for _, want := range [][]string{{"app-1", "app-2"}, {"app-2"}, nil} {
		w.hear(&api.Directive{Decommission: "dec-1", Apps: want})
		if got, heard := w.elsewhere(); !heard || !slices.Equal(got, want) {
			t.Errorf("got %v, %t, want %v", got, heard, want)
		}
	}
	w.hear(nil)
	if got, heard := w.elsewhere(); !heard || len(got) != 0 {
		t.Errorf("got %v, %t, want none", got, heard)
	}
}

// Each new number in a reply is news once: an app has ended. A reply without a number says nothing: no app has ended, or the
// coordinator is an older one.
func TestEndsOfAppsAreToldOnce(t *testing.T) {
	e := new(ends)
	for i, hear := range []struct {
		number uint64
		news   bool
	}{{0, false}, {7, true}, {7, false}, {0, false}, {9, true}, {7, true}} { // the last number is of a coordinator that was restored
		changed := e.changed.Next()
		e.hear(hear.number)
		select {
		case <-changed:
			if !hear.news {
				t.Errorf("reply %d: %d was taken for news", i, hear.number)
			}
		default:
			if hear.news {
				t.Errorf("reply %d: %d was no news", i, hear.number)
			}
		}
	}
}
