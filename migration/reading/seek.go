package reading

import (
	"context"
	"errors"
	"fmt"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// When no holder of a block is known, a coordinator of a large fleet names only some of the nodes that may have it. After a change of
// the leader any node may be the holder, and a block that never moved lies on one node alone. That the first nodes do not have it does
// not mean that it was never known, so the others are asked, too.

// seek asks the nodes behind one that may have a block; before is what the nodes up to there said. Only one block is sought at a time:
// it takes a question to each node.
func (f *Fetcher) seek(ctx context.Context, id inventory.BlockID, after string, before error) ([]Holder, error) {
	if f.LocateMore == nil || !f.seeking.TryLock() {
		return nil, fmt.Errorf("locate %s: %w: more nodes than were asked could have it, and another block is sought there", id, errUnreachable)
	}
	defer f.seeking.Unlock()
	var all []Holder
	for after != "" {
		some, next, err := f.LocateMore(ctx, id, after)
		if err != nil {
			return nil, fmt.Errorf("locate %s: %w: name more of those who could have it: %w", id, errUnreachable, err)
		}
		if next == after {
			break // else a coordinator that begins from the start would do so for ever
		}
		all, after = append(all, some...), next
	}
	found, err := f.probe(ctx, id, all)
	if errors.Is(err, errNeverKnown) {
		err = before
	}
	return found, err
}
