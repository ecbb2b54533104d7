package migration

import (
	"context"
	"sync"
	"time"
)

const (
	// askedAtOnce is how many nodes are asked at once: enough for a rack in one round trip, and no burst for one reader's sake.
	askedAtOnce = 16
	// askHedge is when the next is asked beside one that is silent, and askPatience when no more of them are: all that a
	// coordinator names (its maxCandidates) are asked by then.
	askHedge    = 500 * time.Millisecond
	askPatience = 4 * time.Second
	// ProbePatience is how long one node may take to say whether it has a block: who asks many knows after ten seconds,
	// however many of them are silent.
	ProbePatience = 5 * time.Second
)

// AskMany asks n nodes, in their order, and returns once ask has returned for each. That has so long for each of them; who is
// silent is waited for beside others, so that all of them take little longer than one. For whoever is not reached in time ask
// is called with a ctx that has ended.
func AskMany(ctx context.Context, n int, each time.Duration, ask func(ctx context.Context, i int)) {
	all, cancel := context.WithTimeout(ctx, askPatience+each)
	defer cancel()
	places := make(chan struct{}, askedAtOnce)
	var asking sync.WaitGroup
	defer asking.Wait()
	for i := range n {
		select {
		case places <- struct{}{}:
		case <-all.Done():
			ask(all, i)
			continue
		}
		asking.Go(func() {
			leave := sync.OnceFunc(func() { <-places })
			defer leave()
			defer time.AfterFunc(askHedge, leave).Stop()
			one, cancel := context.WithTimeout(all, each)
			defer cancel()
			ask(one, i)
		})
	}
}
