package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

const (
	// sumsFrom is the fewest blocks of a manifest for which sums are printed: fewer are seen at a glance.
	sumsFrom = 10
	// mostSums bounds the lines of the sums.
	mostSums = 24
	// mostReasons bounds the memory, in distinct peers and reasons.
	mostReasons = 4096
)

// manifestSums counts a manifest's moved blocks by peer, and the others by reason.
type manifestSums struct {
	blocks int64
	of     map[sumKey]*api.Count
}

type sumKey struct{ outcome, why string }

func (s *manifestSums) add(e *api.ManifestEntry) {
	s.blocks++
	k := sumKey{e.GetOutcome(), sizes.ReplaceAllString(strings.ReplaceAll(e.GetReason(), e.GetId(), "…"), "…")}
	if k.outcome == "moved" {
		k.why = "to " + e.GetPeer()
	}
	if s.of == nil {
		s.of = map[sumKey]*api.Count{}
	}
	if s.of[k] == nil && len(s.of) >= mostReasons {
		k = k.other()
	}
	s.count(k, 1, e.GetBytes())
}

func (k sumKey) other() sumKey {
	if k.outcome == "moved" {
		return sumKey{k.outcome, "to others"}
	}
	return sumKey{k.outcome, "for other reasons"}
}

// sizes matches the sizes in reasons: blocks lost for one reason differ in them and in the block's id.
var sizes = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? ([KMGT]i)?B\b`)

func (s *manifestSums) count(k sumKey, blocks, bytes int64) {
	if s.of[k] == nil {
		s.of[k] = &api.Count{}
	}
	s.of[k].Blocks += blocks
	s.of[k].Bytes += bytes
}

// print writes the losses first, then the moved blocks, then the rest; the commonest of each first.
func (s *manifestSums) print(w io.Writer) error {
	if s.blocks < sumsFrom {
		return nil
	}
	if len(s.of) > mostSums {
		most := slices.SortedFunc(maps.Keys(s.of), func(a, b sumKey) int { return cmp.Compare(s.of[b].Blocks, s.of[a].Blocks) })
		for _, k := range most[mostSums-3:] { // one for each outcome
			n := s.of[k]
			delete(s.of, k)
			s.count(k.other(), n.Blocks, n.Bytes)
		}
	}
	order := map[string]int{"lost": 1, "moved": 2}
	keys := slices.SortedFunc(maps.Keys(s.of), func(a, b sumKey) int {
		return cmp.Or(cmp.Compare(cmp.Or(order[a.outcome], 3), cmp.Or(order[b.outcome], 3)), cmp.Compare(s.of[b].Blocks, s.of[a].Blocks), cmp.Compare(a.why, b.why))
	})
	t := show.Table{Folded: true}
	t.Row("OUTCOME", "BLOCKS", "SIZE", "WHERE OR WHY")
	for _, k := range keys {
		t.Row(k.outcome, fmt.Sprint(s.of[k].Blocks), show.Size(s.of[k].Bytes), k.why)
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Print(w)
}
