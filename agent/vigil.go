package agent

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration"
)

// vigilEvery is how often a node that is empty, and still there, asks whether those who took its blocks are: a reclaim gives two
// minutes, and may have one left when somebody is known to have died.
const vigilEvery = 10 * time.Second

// vigil is the eye that a node keeps on those who took its blocks, for as long as it has them itself.
type vigil struct {
	agent  *Agent
	gone   []string  // of the takers, when all blocks were asked about last
	asked  time.Time // when that was
	ended  time.Time // the drain that takers is of
	looked time.Time // when they were asked about last
	takers []string
}

func (a *Agent) keepVigil() *vigil { return &vigil{agent: a, asked: time.Now()} }

// due is when it is time to look at what the drain of p carried.
func (v *vigil) due(p page) time.Time {
	if !p.Work.Drained.Finished.Equal(v.ended) {
		return time.Now()
	}
	return v.looked.Add(vigilEvery)
}

// finds tells whether nobody has any more some of what the drain of p carried, and this node has it and the time to carry it again.
// All is asked about when one is gone of those who took some, and each askHeldEvery.
func (v *vigil) finds(ctx context.Context, p page) bool {
	a, dir := v.agent, v.agent.incidents.Dir(p.Incident.ID)
	v.looked = time.Now()
	if !p.Work.Drained.Finished.Equal(v.ended) {
		v.ended, v.takers = p.Work.Drained.Finished, a.takers(dir)
	}
	if time.Until(a.againUntil(p.Incident)) < leastAgain {
		return false
	}
	gone, news := v.losses(ctx, v.takers)
	if !news && time.Since(v.asked) < askHeldEvery {
		return false
	}
	cfg := a.drainConfig(p.Incident.ID, dir, 0)
	cfg.Lapsed = a.lapsed
	some, err := migration.AnyLapsed(ctx, cfg, max(0, time.Since(v.ended)))
	if err != nil {
		a.log.Debug("nobody says whether what was carried is still held", "err", err)
		return false
	}
	v.gone, v.asked = gone, time.Now()
	return some
}

// losses are those of the takers that are gone, and whether one of them was there when all was asked about last.
func (v *vigil) losses(ctx context.Context, takers []string) (gone []string, news bool) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	gone, err := v.agent.beat.CheckPeers(ctx, takers)
	if err != nil {
		return nil, false
	}
	return gone, slices.ContainsFunc(gone, func(node string) bool { return !slices.Contains(v.gone, node) })
}

func (a *Agent) takers(dir string) []string {
	takers, err := migration.Takers(dir)
	if err != nil {
		a.log.Warn("cannot read who took what was carried", "err", err)
	}
	return takers
}
