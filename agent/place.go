package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// place is the node's zone and pool, by which peers are chosen: from the configuration, and from the cloud where that leaves
// them out. What neither has said is empty.
type place struct{ zone, pool string }

func (p place) known() bool { return p.zone != "" && p.pool != "" }

const (
	// startPatience is how long the start waits for the cloud to say the place. It can still be learned later.
	startPatience = time.Second
	// placePatience is how long one later question may take, and placeEvery the longest pause between two.
	placePatience = 30 * time.Second
	placeEvery    = time.Minute
)

// askPlace asks the cloud for what is not known yet.
func (a *Agent) askPlace(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	i, err := a.cloud.Instance(ctx)
	if err != nil {
		return err
	}
	p := *a.place.Load()
	p.zone = cmp.Or(p.zone, i.Zone)
	if p.pool == "" && i.Type != "" {
		p.pool = i.Type + "-" + i.LifeCycle // machines that are reclaimed together: of one type, spot or not, in a zone
	}
	if len(p.pool) > maxWord { // the coordinator would refuse every heartbeat of a node with it
		return fmt.Errorf("its machine type is a name of %d bytes, which is none", len(i.Type))
	}
	a.place.Store(&p)
	return nil
}

// learnPlace goes on asking a cloud that did not say the place while the agent started: it may be slow, or come up later
// than the agent.
func (a *Agent) learnPlace(ctx context.Context) error {
	for pause := time.Second; a.cloud != nil && !a.place.Load().known(); pause = min(2*pause, placeEvery) {
		if !await.Sleep(ctx, pause) {
			return nil
		}
		before := *a.place.Load()
		if err := a.askPlace(ctx, placePatience); err != nil {
			a.log.Debug("the cloud still does not say which zone and machine type this is", "err", err)
		} else if now := *a.place.Load(); now != before {
			a.log.Info("the cloud has said which zone and machine type this is", "zone", now.zone, "pool", now.pool)
			a.fleet.Nudge()
		}
	}
	return nil
}
