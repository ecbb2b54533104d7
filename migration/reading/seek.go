package reading

import (
	"context"
	"errors"
	"fmt"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// In a large fleet a coordinator names a part of those who could have a block that nobody is known to hold: after a change of the leader
// any may be the one, and what never moved lies at one alone. That the first of them have it not does not say that it was never known,
// so the others are asked, too.

// seek asks those who could have a block behind one of them; before is what those up to there said. One reader's block is sought so at a
// time: it takes a question to each node.
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
			break // a coordinator that begins anew would do so for ever
		}
		all, after = append(all, some...), next
	}
	found, err := f.probe(ctx, id, all)
	if errors.Is(err, errNeverKnown) {
		err = before
	}
	return found, err
}
