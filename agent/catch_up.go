package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
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

// behind knows whether copies here may be out of date because this node was away, and finds out which are.
type behind struct {
	fleet    *fleet
	receiver *receiver.Receiver
	fetch    *reading.Fetcher

	is      atomic.Bool // this node was away, and has not asked yet which of its copies are out of date
	doubted chan string // nodes that want to be asked which of their blocks here are out of date (POST /home/doubt)
}

// Run removes copies that are out of date, until ctx ends. Each time this node is back from being away it asks the nodes
// that the blocks were born on which of them have changed. It also asks a node that requests it (doubt), since that node
// took the name of another machine whose blocks may be here.
func (b *behind) Run(ctx context.Context) error {
	all, doubted := false, map[string]bool{}
	whom := receiver.CatchUp{Where: b.fleet.whereIs, Ask: b.fetch.AtHome}
	var again <-chan time.Time
	for {
		spread := rand.N(catchUpSpread)
		select {
		case silent := <-b.fleet.Back():
			if all = true; silent >= awayFor {
				whom.WhoElse = b.fleet.whoElse
				b.is.Store(true)
			}
		case home := <-b.doubted: // no spread: that node is about to go
			doubted[home], spread = true, 0
			whom.WhoElse = b.fleet.whoElse
			b.is.Store(true)
		case <-again:
		case <-ctx.Done():
			return nil
		}
		if !await.Sleep(ctx, spread) {
			return nil
		}
		if whom.Of = doubted; all {
			whom.Of = nil
		}
		if again = nil; b.receiver.CatchUp(ctx, whom) {
			whom.WhoElse = nil
			b.is.Store(false)
			all = false
			clear(doubted)
		} else {
			again = time.After(catchUpAgain)
		}
	}
}

// doubt serves POST /home/doubt. The calling node has the name of an earlier machine, of whose blocks this node may hold
// some: Run then asks the caller about them.
func (b *behind) doubt(w http.ResponseWriter, r *http.Request) {
	node, is := fromNode(r)
	if !is {
		http.Error(w, "only a node has another ask it what it has", http.StatusForbidden)
		return
	}
	select {
	case b.doubted <- node:
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "others are asked first: say it again", http.StatusServiceUnavailable)
	}
}

// askHolders returns a function for a node whose name another machine had before. It finds the nodes that hold some of the
// given blocks, and asks each of them once to check its copies of what was born here (POST /home/doubt).
func (b *behind) askHolders() func(ctx context.Context, blocks []inventory.BlockID) error {
	asked := map[string]bool{}
	return func(ctx context.Context, blocks []inventory.BlockID) error {
		holders, _, err := b.fleet.whoElse(ctx, blocks)
		for _, h := range holders {
			if !asked[h.Node] {
				asked[h.Node] = true
				err = errors.Join(err, b.fetch.Doubt(ctx, h))
			}
		}
		return err
	}
}
