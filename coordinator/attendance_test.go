package coordinator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// A coordinator that does not answer is logged once, however long that lasts, and once more when it is back. A coordinator that restarts, or
// was removed, is not logged.
func TestCoordinatorThatIsAwayIsTold(t *testing.T) {
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	a, others := &attendance{}, peersNamed(3)[1:]
	both := map[string]position{"c2": {Position: &api.Position{}}, "c3": {Position: &api.Position{}}}
	without := map[string]position{"c2": both["c2"]}
	expect := func(when string, silent int, words ...string) {
		t.Helper()
		if got := len(a.silent()); got != silent {
			t.Errorf("%s: got %d silent, want %d", when, got, silent)
		}
		if got := strings.Count(said.String(), "\n"); got != len(words) {
			t.Errorf("%s: got %q, want %d lines", when, said.String(), len(words))
		}
		for _, w := range words {
			if !strings.Contains(said.String(), w) || !strings.Contains(said.String(), "name=c3") {
				t.Errorf("%s: got %q, want %q of c3 in it", when, said.String(), w)
			}
		}
		said.Reset()
	}
	a.note(others, both, log)
	a.note(others, without, log)
	a.note(others, both, log)
	expect("restarted", 0)
	for range 100 {
		a.note(others, without, log)
	}
	expect("away", 1, "does not answer")
	a.note(others, both, log)
	expect("back", 0, "answers again")
	for range 3 {
		a.note(others, without, log)
	}
	expect("away again", 1, "does not answer")
	a.note(others[:1], without, log)
	expect("removed", 0)
}
