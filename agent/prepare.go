package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

// copyAgain is the pause between two passes of copying ahead. A pass in which nothing changed reads names and no bytes.
const copyAgain = time.Minute

// copyAhead copies blocks to peers at a gentle rate, pass after pass, until ctx ends. The incident's ledger names what it
// moved, so a drain that follows sends only what is new or has changed since.
func (c *course) copyAhead(ctx context.Context, i preemption.Incident) {
	c.log.Info("copying ahead", "incident", i.ID, "kind", i.Kind(), "bytes_per_second", int64(c.limits.Load().Drain.PreCopyBytesPerSecond))
	for ctx.Err() == nil {
		began := time.Now()
		asked, changed := c.fleet.Again()
		pause := copyAgain
		sum, err := c.refuge.carry(ctx, i.ID, false, func(ctx context.Context, dir string) (manifest.Summary, error) {
			cfg := c.aheadConfig(i.ID, dir)
			q := c.vigil.before(ctx, i.ID, dir)
			c.vigil.put(q, &cfg)
			d := c.newDrain(ctx, cfg, true, false)
			if d == nil {
				return manifest.Summary{}, errLeft
			}
			if _, err := d.CarryAgain(ctx, brokenFrom(asked)); err != nil {
				c.log.Warn("cannot read what was copied ahead: what is broken is carried again", "err", err)
			}
			pass, cut := context.WithCancelCause(ctx)
			var turn sync.WaitGroup
			turn.Go(func() { c.untilPeersTurn(pass, cfg.Own); cut(errTurned) })
			turn.Go(func() { c.untilStill(pass, d); cut(nil) })
			turn.Go(func() { c.watchTakers(pass) })
			sum, err := d.Run(pass)
			turned := context.Cause(pass) == errTurned
			cut(nil)
			turn.Wait()
			if isLeft(ctx) {
				return sum, errLeft
			}
			if turned { // the pass may not have asked about all blocks
				pause = lookAround
				q.answered(heartbeat.Held{}, errTurned)
			}
			c.vigil.after(q)
			return sum, err
		})
		if err != nil {
			c.log.Warn("the manifest of what was copied ahead is not complete", "err", err)
		}
		c.log.Debug("copied ahead", "incident", i.ID, "blocks", sum.Moved.Blocks, "bytes", sum.Moved.Bytes, "took", time.Since(began))
		select {
		case <-time.After(pause):
		case <-changed: // a block broke at its peer, and the pass was over too soon to be told
		case <-ctx.Done():
		}
	}
}

// watchTakers keeps the vigil during a long pass, until ctx ends.
func (c *course) watchTakers(ctx context.Context) {
	eye := lookout{vigil: &c.vigil}
	defer eye.putOff()
	look := time.NewTicker(copyAgain)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if p, open := c.incidents.Open(); open {
				eye.amid(ctx, p)
			}
		case <-ctx.Done():
			return
		}
	}
}

// A pass that has looked through the stores, and for stillFor has moved no block and sent no more than leastRate, is cut
// short: a block that no peer has room for must not keep the next pass from looking for new ones.
const (
	stillFor  = 5 * time.Minute
	leastRate = 1 << 20 // bytes per second of a large block under way; or 1/capShare of the cap, if that is less
	capShare  = 4
)

// untilStill waits until a pass has moved nothing for stillFor, or ctx ends.
func (c *course) untilStill(ctx context.Context, d *migration.Drain) {
	look := time.NewTicker(lookAround)
	defer look.Stop()
	since, moved, rates := time.Now(), int64(0), int64(0)
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		least := int64(leastRate)
		if most := int64(c.limits.Load().Drain.PreCopyBytesPerSecond); most > 0 {
			least = min(least, most/capShare)
		}
		p := d.Progress()
		rates += p.BytesPerSecond
		switch goesOn := p.Phase == migration.PhaseScanning || p.Moved.Blocks != moved; {
		case goesOn, time.Since(since) >= stillFor && rates >= least*int64(stillFor/lookAround):
			since, moved, rates = time.Now(), p.Moved.Blocks, 0
		case time.Since(since) >= stillFor:
			return
		}
	}
}

// errTurned says that a pass ends because its peers are no longer what it was planned for.
var errTurned = errors.New("all peers are advised to go now, or not any more")

// untilPeersTurn waits until allAdvised differs from advised, which is what the running pass was planned for.
func (c *course) untilPeersTurn(ctx context.Context, advised bool) {
	look := time.NewTicker(lookAround)
	defer look.Stop()
	for c.fleet.allAdvised() == advised {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// aheadConfig is for one pass of copying ahead. Such a pass names nothing as lost: a drain that takes over must not wait
// until every block that is left was named.
func (c *course) aheadConfig(incident, dir string) migration.DrainConfig {
	cfg := c.accountConfig(incident, dir, c.limits.Load().Drain.PreCopyBytesPerSecond)
	cfg.Ballast = nil // it is for the names of lost blocks
	cfg.Once = true
	cfg.Settle = nil // the next pass takes blocks that leaving peers send meanwhile
	cfg.Own = c.fleet.allAdvised()
	cfg.Advised = func() bool { return cfg.Own }
	cfg.Fallback = nil // most of these notices come to nothing, and a bucket costs
	return cfg
}

// estimate is how long emptying the node of the rest would take, as far as copying ahead has looked. Zero: not known.
func (c *course) estimate() time.Duration {
	p, _, ok := c.drains.progress()
	if !ok {
		return 0
	}
	rate := max(p.BytesPerSecond, int64(c.limits.Load().Drain.PreCopyBytesPerSecond), assumedRate)
	return time.Duration(float64(max(0, p.Found.Bytes-p.Moved.Bytes)) / float64(rate) * float64(time.Second))
}

// assumedRate is, in bytes per second, what two hosts with 1 Gbit/s between them carry: less than any cloud machine with
// local disks worth emptying.
const assumedRate = 100 << 20
