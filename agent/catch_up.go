package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lifeboat/lifeboat/migration"
)

const (
	// catchUpSpread is over how long nodes spread what they ask once they are back: after a restart of the coordinator that is all of them.
	catchUpSpread = 10 * time.Second
	// catchUpAgain is when a node is asked again that did not answer.
	catchUpAgain = time.Minute
	// awayFor is how long a node was silent that was away itself. Where the coordinator was it is back after some seconds, and all nodes
	// at once would ask it who else has what they have.
	awayFor = 10 * time.Second
)

// catchUp removes what changed where it was born while this node was away, whenever it is back, until ctx ends.
func (a *Agent) catchUp(ctx context.Context) error {
	whom := migration.CatchUp{Where: a.whereIs, Ask: a.reader.Fetch.AtHome}
	var again <-chan time.Time
	for {
		select {
		case silent := <-a.beat.Back():
			if silent >= awayFor {
				whom.WhoElse = a.whoElse
				a.behind.Store(true)
			}
		case <-again:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(rand.N(catchUpSpread)):
		case <-ctx.Done():
			return nil
		}
		again = nil
		if a.receiver.CatchUp(ctx, whom) {
			whom.WhoElse = nil
			a.behind.Store(false)
		} else {
			again = time.After(catchUpAgain)
		}
	}
}
