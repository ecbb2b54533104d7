package coordinator

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// A thousand nodes that fall silent together make a few log lines; a few nodes make a line each, with their names.
func TestManyNodesShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		b := newBursts(slog.New(slog.NewTextHandler(&text, nil)))
		lines := func() (all []string) {
			all = strings.Split(strings.TrimSpace(text.String()), "\n")
			text.Reset()
			return all
		}
		fall := func(n int) { // over ten seconds, as beats are
			for i := range n {
				b.silent.saw(b.log, fmt.Sprintf("n%04d", i))
				time.Sleep(10 * time.Second / time.Duration(n))
				b.tell(false)
			}
		}
		fall(1000)
		b.tell(true)
		all := lines()
		if n := len(all); n > burstSingly+3 {
			t.Errorf("got %d lines for 1000 nodes", n)
		}
		many := strings.Join(all[burstSingly:], "\n")
		if !strings.Contains(many, "many nodes are silent") || !strings.Contains(many, "some=\"n0005, n0006,") {
			t.Errorf("got no count and names in\n%s", many)
		}
		time.Sleep(burstEvery)
		fall(3)
		b.tell(true)
		if all := lines(); len(all) != 3 || !strings.Contains(all[2], "node=n0002") {
			t.Errorf("got %q for three nodes, want a line each", all)
		}
		for range burstSingly + 1 {
			b.clock("x", farOff, time.Hour)
		}
		b.tell(true)
		if all := lines(); len(all) != burstSingly+1 || strings.Contains(text.String(), "many") {
			t.Errorf("got %q, want a line of its own for the one that is left", all)
		}
	})
}

// Many nodes that one decision loses share a log line, with what they have in common; each still has its own event.
func TestManyChangesShareALine(t *testing.T) {
	inTown(t, func(v *town) {
		var text bytes.Buffer
		v.log = slog.New(slog.NewTextHandler(&text, nil))
		v.restart()
		all := v.crowd("p", 40)
		v.beats(300, all[30:])
		if _, err := v.operator().ReleaseBrake(v.Context(), &api.ReleaseBrakeRequest{Reason: "rack burnt"}); err != nil {
			v.Fatal(err)
		}
		time.Sleep(burstEvery + time.Second)
		v.stop()
		if n := len(strings.Split(text.String(), "silent")); n > 12 {
			t.Errorf("got %d words of silence for 30 nodes", n)
		}
		if n := strings.Count(text.String(), "event=NodeLost"); n != 1 || !strings.Contains(text.String(), "event=NodeLost nodes=30 some=\"p-00, p-01, p-02, p-03, p-04\"") {
			t.Errorf("got %d lines of 30 nodes that are lost:\n%s", n, text.String())
		}
	})
}
