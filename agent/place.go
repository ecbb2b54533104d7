package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// place is where the node stands, as peers are chosen by it: what the configuration says, and for what it leaves out, what the
// cloud says. What neither has said is empty.
type place struct{ zone, pool string }

func (p place) known() bool { return p.zone != "" && p.pool != "" }

const (
	// startPatience is how long the start waits for the cloud to say it: it is told later as well.
	startPatience = time.Second
	// placePatience is how long it may take later, and placeEvery the longest pause before it is asked again.
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
		p.pool = i.Type + "-" + i.LifeCycle // what is reclaimed together: a type in a zone, spot or not
	}
	if len(p.pool) > maxWord { // the coordinator would take no word of a node in it
		return fmt.Errorf("its machine type is a name of %d bytes, which is none", len(i.Type))
	}
	a.place.Store(&p)
	return nil
}

// learnPlace goes on asking a cloud that did not say it while the agent started, as one that is slow, or comes up later than this.
func (a *Agent) learnPlace(ctx context.Context) error {
	for pause := time.Second; a.cloud != nil && !a.place.Load().known(); pause = min(2*pause, placeEvery) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		before := *a.place.Load()
		if err := a.askPlace(ctx, placePatience); err != nil {
			a.log.Debug("the cloud still does not say which zone and machine type this is", "err", err)
		} else if now := *a.place.Load(); now != before {
			a.log.Info("the cloud has said which zone and machine type this is", "zone", now.zone, "pool", now.pool)
			a.beat.Nudge()
		}
	}
	return nil
}
