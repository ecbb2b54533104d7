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
	// catchUpSpread is over how long nodes spread their questions once they are back: a restart of the coordinator brings
	// all nodes back at once.
	catchUpSpread = 10 * time.Second
	// catchUpAgain is the pause before nodes that did not answer are asked again.
	catchUpAgain = time.Minute
	// awayFor is how long a node must have been silent to count as having been away itself. When it was the coordinator that
	// was away, it is back after some seconds, and all nodes at once would ask it who else has their blocks.
	awayFor = 10 * time.Second
	// mostDoubted is how many requests of doubt may wait while other nodes are asked.
	mostDoubted = 64
)

// catchUp removes copies that are out of date, until ctx ends. Each time this node is back from being away it asks the nodes
// that the blocks were born on which of them have changed. It also asks a node that requests it (doubt), since that node
// took the name of another machine whose blocks may be here.
func (a *Agent) catchUp(ctx context.Context) error {
	all, doubted := false, map[string]bool{}
	whom := receiver.CatchUp{Where: a.beat.whereIs, Ask: a.reader.Fetch.AtHome}
	var again <-chan time.Time
	for {
		spread := rand.N(catchUpSpread)
		select {
		case silent := <-a.beat.Back():
			if all = true; silent >= awayFor {
				whom.WhoElse = a.beat.whoElse
				a.behind.Store(true)
			}
		case home := <-a.doubted: // no spread: that node is about to go
			doubted[home], spread = true, 0
			whom.WhoElse = a.beat.whoElse
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

// doubt serves POST /home/doubt. The calling node has the name of an earlier machine, of whose blocks this node may hold
// some: catchUp then asks the caller about them.
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

// askHolders returns a function for a node whose name another machine had before. It finds the nodes that hold some of the
// given blocks, and asks each of them once to check its copies of what was born here (POST /home/doubt).
func (a *Agent) askHolders() func(ctx context.Context, blocks []inventory.BlockID) error {
	asked := map[string]bool{}
	return func(ctx context.Context, blocks []inventory.BlockID) error {
		holders, _, err := a.beat.whoElse(ctx, blocks)
		for _, h := range holders {
			if !asked[h.Node] {
				asked[h.Node] = true
				err = errors.Join(err, a.reader.Fetch.Doubt(ctx, h))
			}
		}
		return err
	}
}
