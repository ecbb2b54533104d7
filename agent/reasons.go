package agent

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

const (
	// reasonsRead bounds what is read of an account for a line of a log, reasonsSaid what the line says of it.
	reasonsRead = 10_000
	reasonsSaid = 3
)

// whyLost says in a line of a log why blocks were lost, the commonest reason first, and of reasons that are as common the one that most bytes were lost for. Which block each was of is in the manifest.
func whyLost(account iter.Seq2[manifest.Entry, error]) string {
	blocks, bytes, read := map[string]int{}, map[string]int64{}, 0
	for e, err := range account {
		if err != nil || e.Outcome != manifest.Lost || read == reasonsRead { // the lost come first
			break
		}
		read++
		why := strings.NewReplacer("block "+e.ID, "it", e.ID, "it").Replace(e.Reason) // many say whom it was sent to
		blocks[why]++
		bytes[why] += e.Bytes
	}
	reasons := slices.SortedFunc(maps.Keys(blocks), func(a, b string) int {
		return cmp.Or(blocks[b]-blocks[a], cmp.Compare(bytes[b], bytes[a]), strings.Compare(a, b))
	})
	var said []string
	for _, why := range reasons[:min(len(reasons), reasonsSaid)] {
		said = append(said, fmt.Sprintf("%d: %s", blocks[why], why))
		read -= blocks[why]
	}
	if read > 0 {
		said = append(said, fmt.Sprintf("%d: other reasons", read))
	}
	return strings.Join(said, "; ")
}
