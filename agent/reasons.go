package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

const (
	// reasonsRead bounds how many entries of an account are read for a line of the log, reasonsSaid how many reasons the
	// line names.
	reasonsRead = 10_000
	reasonsSaid = 3
)

// whyLost is whyLost of an incident's account. It is empty where the disk of the account hangs: the end of the drain does not
// wait for a line of the log.
func (c *course) whyLost(ctx context.Context, incident string) string {
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	why, _ := diskio.UnlessHung(ctx, func() (string, error) { return whyLost(c.manifest(incident)), nil })
	return why
}

// whyLost sums up in one line of the log why blocks were lost: the commonest reason first and, of equally common ones, the
// one that cost the most bytes. The manifest has the reason of each block.
func whyLost(account iter.Seq2[manifest.Entry, error]) string {
	blocks, bytes, read, which := map[string]int{}, map[string]int64{}, 0, ""
	for e, err := range account {
		if err != nil || e.Outcome != manifest.Lost { // entries of lost blocks come first
			break
		}
		if read == reasonsRead {
			which = fmt.Sprintf("of the first %d, ", reasonsRead)
			break
		}
		read++
		why := strings.NewReplacer("block "+e.ID, "it", e.ID, "it").Replace(e.Reason) // many reasons name the block itself
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
	return which + strings.Join(said, "; ")
}
