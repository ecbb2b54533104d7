package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// copyAgain is the pause between two passes of copying ahead. A pass in which nothing changed reads names and no bytes.
const copyAgain = time.Minute

// copyAhead carries blocks away at a gentle rate, pass after pass, until ctx ends. What it moved stands in the incident's
// ledger, where the drain that may follow finds it: only what is new or changed since is sent then.
func (a *Agent) copyAhead(ctx context.Context) {
	i := a.incident()
	a.log.Info("copying ahead", "incident", i.ID, "kind", i.Kind(), "bytes_per_second", int64(a.limits.Load().Drain.PreCopyBytesPerSecond))
	for ctx.Err() == nil {
		began := time.Now()
		asked, changed := a.beat.Again()
		pause := copyAgain
		sum, err := a.carry(ctx, i.ID, false, func(ctx context.Context, dir string) (manifest.Summary, error) {
			cfg := a.aheadConfig(i.ID, dir)
			q := a.vigil.before(ctx, i.ID, dir)
			a.vigil.put(q, &cfg)
			d := a.newDrain(ctx, cfg, true, false)
			if d == nil {
				return manifest.Summary{}, errLeft
			}
			if _, err := d.CarryAgain(ctx, brokenFrom(asked)); err != nil {
				a.log.Warn("cannot read what was copied ahead: what is broken is carried again", "err", err)
			}
			pass, cut := context.WithCancelCause(ctx)
			var turn sync.WaitGroup
			turn.Go(func() { a.untilPeersTurn(pass, cfg.Own); cut(errTurned) })
			turn.Go(func() { a.untilStill(pass, d); cut(nil) })
			turn.Go(func() { a.watchTakers(pass) })
			sum, err := d.Run(pass)
			turned := context.Cause(pass) == errTurned
			cut(nil)
			turn.Wait()
			if isLeft(ctx) {
				return sum, errLeft
			}
			if turned { // it may not have asked about all
				pause = lookAround
				q.answered(heartbeat.Held{}, errTurned)
			}
			a.vigil.after(q)
			return sum, err
		})
		if err != nil {
			a.log.Warn("the manifest of what was copied ahead is not complete", "err", err)
		}
		a.log.Debug("copied ahead", "incident", i.ID, "blocks", sum.Moved.Blocks, "bytes", sum.Moved.Bytes, "took", time.Since(began))
		select {
		case <-time.After(pause):
		case <-changed: // something is broken that a pass is too short for to be told of amid it
		case <-ctx.Done():
		}
	}
}

// watchTakers keeps the vigil amid a pass that goes on for long, until ctx ends.
func (a *Agent) watchTakers(ctx context.Context) {
	eye := lookout{vigil: &a.vigil}
	look := time.NewTicker(copyAgain)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if p, open := a.incidents.Open(); open {
				eye.amid(ctx, p)
			}
		case <-ctx.Done():
			return
		}
	}
}

// A pass is cut short that has looked through the stores and then moved nothing for stillFor, nor sent much: a block that no peer has room
// for must not keep what is written meanwhile from being looked for.
const (
	stillFor  = 5 * time.Minute
	leastRate = 1 << 20 // of a large block, bytes per second; or a part of the cap, if that is less
	capShare  = 4
)

// untilStill waits until a pass moves nothing any more.
func (a *Agent) untilStill(ctx context.Context, d *migration.Drain) {
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
		if most := int64(a.limits.Load().Drain.PreCopyBytesPerSecond); most > 0 {
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

// errTurned is why a pass ends for which the peers are others than it went by.
var errTurned = errors.New("all peers are advised to go now, or not any more")

// untilPeersTurn waits until all peers are advised to go and were not, or the other way round: a pass goes by that.
func (a *Agent) untilPeersTurn(ctx context.Context, advised bool) {
	look := time.NewTicker(lookAround)
	defer look.Stop()
	for a.allAdvised() == advised {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// aheadConfig is for one pass of copying ahead. Nothing is lost in it: a drain that takes over must not wait until all that
// is left was named.
func (a *Agent) aheadConfig(incident, dir string) migration.DrainConfig {
	cfg := a.accountConfig(incident, dir, a.limits.Load().Drain.PreCopyBytesPerSecond)
	cfg.Ballast = nil // for what is lost
	cfg.Once = true
	cfg.Settle = nil // what lands here from nodes that leave is for the next pass
	cfg.Own = a.allAdvised()
	cfg.Advised = func() bool { return cfg.Own }
	cfg.Fallback = nil // most of these notices come to nothing, and a bucket costs
	return cfg
}

// drainConfig is for a drain that carries all that this node has, but for what the ledger in dir says is elsewhere.
func (a *Agent) drainConfig(id, dir string, cap config.Bytes) migration.DrainConfig {
	at := a.place.Load()
	cfg := migration.DrainConfig{
		Node: a.cfg.Node.Name, Zone: at.zone, Pool: at.pool, Incident: id, Dir: dir, Stores: a.stores, Vault: a.vault, Told: a.told, Disks: a.landing, Index: a.index,
		Settle: a.receiver.Settle, Advised: a.leaving, Alone: a.alone, Peers: a.peers, Missed: a.missesPeers, Dial: a.dialPeer, Forget: a.reader.Fetch.Forget, Where: a.whereIs, AtHome: a.reader.Fetch.AtHome,
		ForgetElsewhere: a.reader.Fetch.ForgetElsewhere, Connections: a.limits.Load().Drain.ConnectionsPerPeer, MaxBytesPerSecond: int64(cap), Fallback: a.fallback, Over: a.appsOver, OverChanged: a.beat.AppsChanged, Log: a.log,
	}
	if a.behind.Load() {
		cfg.WhoElse = a.whoElse
	}
	if a.beat.Namesake() {
		cfg.Namesake = a.askHolders()
	}
	return cfg
}

// estimate is how long it would take to empty the node of what is still on it, as far as copying ahead has looked. Zero:
// not known.
func (a *Agent) estimate() time.Duration {
	p, _, ok := a.drains.progress()
	if !ok {
		return 0
	}
	rate := max(p.BytesPerSecond, int64(a.limits.Load().Drain.PreCopyBytesPerSecond), assumedRate)
	return time.Duration(float64(max(0, p.Found.Bytes-p.Moved.Bytes)) / float64(rate) * float64(time.Second))
}

// assumedRate is what two hosts with 1 Gbit/s between them carry, bytes per second: less than any cloud's machine that
// has local disks worth emptying.
const assumedRate = 100 << 20
