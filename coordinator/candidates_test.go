package coordinator

import (
	"fmt"
	"testing"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A reader that asked the named candidates in vain is told all others in turn, even if nodes join meanwhile.
func TestAllCandidatesAreNamedPartByPart(t *testing.T) {
	inTown(t, func(v *town) {
		const nodes = 2*maxCandidates + 10
		want := map[string]bool{}
		for i := range nodes {
			name := fmt.Sprintf("n-%03d", i)
			v.agent(name).register()
			want[name] = true
		}
		r := &api.LocateRequest{Id: "cache/-/x"}
		for part := 0; part == 0 || r.After != ""; part++ {
			reply, err := v.operator().Locate(v.Context(), r)
			if err != nil {
				v.Fatal(err)
			}
			if n := len(reply.Candidates); n > maxCandidates || part > 4 {
				v.Fatalf("part %d: got %d at once", part, n)
			}
			for _, h := range reply.Candidates {
				delete(want, h.Node)
			}
			r.After = reply.Next
			v.agent(fmt.Sprintf("late-%03d", part)).register()
		}
		if len(want) > 0 {
			v.Errorf("%d are never named: %v", len(want), want)
		}
	})
}

// The receiver of a block is gone, and its source stays after all: the source is the first candidate, however many others could have it.
func TestTheSourceOfWhatIsLostIsAsked(t *testing.T) {
	inTown(t, func(v *town) {
		many := v.crowd("n", 2*maxCandidates)
		b := v.agent("b")
		b.register()
		b.beat()
		word := &api.ReportBlocksRequest{Node: "b", Incarnation: b.incarnation}
		of := map[string]string{}
		for i := range 20 {
			source, id := many[10*i].name, fmt.Sprintf("cache/-/x-%d", i)
			word.Landed, of[id] = append(word.Landed, &api.HeldBlock{Id: id, From: source}), source
		}
		if err := reports(b, word); err != nil {
			v.Fatal(err)
		}
		v.beats(120, many)
		v.is("b", registry.Lost)
		for id, source := range of {
			r, err := v.operator().Locate(v.Context(), &api.LocateRequest{Id: id})
			if err != nil {
				v.Fatal(err)
			}
			if r.State != "lost" || r.Candidates[0].Node != source {
				v.Errorf("%s of %s: it is %s, and the first of %d to ask is %s", id, source, r.State, len(r.Candidates), r.Candidates[0].Node)
			}
		}
	})
}
