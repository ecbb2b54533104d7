package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

const (
	// catchUpSpread is over how long nodes spread what they ask once they are back: after a restart of the coordinator that is all of them.
	catchUpSpread = 10 * time.Second
	// catchUpAgain is when a node is asked again that did not answer.
	catchUpAgain = time.Minute
	// awayFor is how long a node was silent that was away itself. Where the coordinator was it is back after some seconds, and all nodes
	// at once would ask it who else has what they have.
	awayFor = 10 * time.Second
	// mostDoubted is how many nodes may say so while others are asked.
	mostDoubted = 64
)

// catchUp removes what changed where it was born while this node was away, whenever it is back, and what was born on another machine of
// a node's name when that one says so, until ctx ends.
func (a *Agent) catchUp(ctx context.Context) error {
	all, doubted := false, map[string]bool{}
	whom := receiver.CatchUp{Where: a.whereIs, Ask: a.reader.Fetch.AtHome}
	var again <-chan time.Time
	for {
		spread := rand.N(catchUpSpread)
		select {
		case silent := <-a.beat.Back():
			if all = true; silent >= awayFor {
				whom.WhoElse = a.whoElse
				a.behind.Store(true)
			}
		case home := <-a.doubted: // it goes
			doubted[home], spread = true, 0
			whom.WhoElse = a.whoElse
			a.behind.Store(true)
		case <-again:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(spread):
		case <-ctx.Done():
			return nil
		}
		if whom.Of = doubted; all {
			whom.Of = nil
		}
		if again = nil; a.receiver.CatchUp(ctx, whom) {
			whom.WhoElse = nil
			a.behind.Store(false)
			all = false
			clear(doubted)
		} else {
			again = time.After(catchUpAgain)
		}
	}
}

// doubt takes a node's word that it has the name of another machine, of whose blocks some may be here.
func (a *Agent) doubt(w http.ResponseWriter, r *http.Request) {
	node, is := fromNode(r)
	if !is {
		http.Error(w, "only a node has another ask it what it has", http.StatusForbidden)
		return
	}
	select {
	case a.doubted <- node:
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "others are asked first: say it again", http.StatusServiceUnavailable)
	}
}

// askHolders returns what has each node look once at what it has that was born here, if it has some of the blocks asked about.
func (a *Agent) askHolders() func(ctx context.Context, blocks []inventory.BlockID) error {
	asked := map[string]bool{}
	return func(ctx context.Context, blocks []inventory.BlockID) error {
		holders, _, err := a.whoElse(ctx, blocks)
		for _, h := range holders {
			if !asked[h.Node] {
				asked[h.Node] = true
				err = errors.Join(err, a.reader.Fetch.Doubt(ctx, h))
			}
		}
		return err
	}
}
