package reading

import (
	"context"
	"sync"
	"time"
)

const (
	// askedAtOnce is how many nodes are asked at once: enough for a rack in one round trip, and no burst for one reader's sake.
	askedAtOnce = 16
	// askHedge is how long a silent node is waited for before the next is asked beside it. askPatience is when no further node is
	// asked. By then all nodes have been that a coordinator names at once (its maxCandidates), and if they answer thousands of a
	// fleet.
	askHedge    = 500 * time.Millisecond
	askPatience = 4 * time.Second
	// ProbePatience is how long one node may take to say whether it has a block. A reader that asks many knows after
	// ten seconds, however many of them are silent.
	ProbePatience = 5 * time.Second
)

// AskMany calls ask for each of n nodes, in their order, with a ctx that lasts for each, and returns once all calls have.
// While a node is silent others are asked, so that all of them take little longer than one. A node whose turn comes too
// late gets a ctx that has ended.
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
