package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration"
)

const (
	// tendEvery is how often an agent looks whether its fallback takes blocks and, in a directory, removes what is old.
	tendEvery = time.Hour
	// checkTimeout is longer than the fallback's own patience.
	checkTimeout = 30 * time.Second
	// swept is put into a directory when an agent begins to remove what is old there.
	swept = "lifeboat-swept"
)

// openFallback makes the last resort that the configuration names, if it names one. Nobody is asked yet: a bucket that is
// away must not keep the agent from starting.
func (a *Agent) openFallback(ctx context.Context) error {
	f := a.cfg.Fallback
	if !f.On() {
		return nil
	}
	storage, err := f.Open(ctx, a.deps.Dial)
	if err != nil {
		return fmt.Errorf("open the fallback: %w", err)
	}
	a.storage = storage
	a.fallback = &migration.Fallback{Name: f.Name, Layout: f.Layout, Streams: f.Streams, Objects: storage}
	return nil
}

// tendFallback says while there is time when the fallback would be of no use, and keeps a directory from growing for ever.
func (a *Agent) tendFallback(ctx context.Context) error {
	if a.storage == nil {
		return nil
	}
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.checkFallback(ctx)
		a.sweepFallback(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (a *Agent) checkFallback(ctx context.Context) {
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := fallback.Check(checking, a.storage)
	if ctx.Err() != nil {
		return // the agent ends, which says nothing
	}
	well := err == nil
	switch was := a.fallbackOK.Swap(&well); {
	case !well && (was == nil || *was):
		a.log.Error("the fallback would take nothing now", "peer", a.fallback.Peer(), "err", err)
	case well && was != nil && !*was:
		a.log.Info("the fallback is well again", "peer", a.fallback.Peer())
	}
}

func (a *Agent) sweepFallback(ctx context.Context) {
	dir, ok := a.storage.(*fallback.Directory)
	if !ok {
		return
	}
	if _, _, at, err := dir.Stat(ctx, swept); err == nil && time.Since(at) < tendEvery {
		return // another agent did it: a share need not be walked by a whole fleet
	}
	if err := dir.Put(ctx, swept, 0, strings.NewReader(""), false); err != nil {
		return // the check has said what is wrong
	}
	var before time.Time
	if a.cfg.Fallback.Keep > 0 {
		before = time.Now().Add(-a.cfg.Fallback.Keep)
	}
	removed, err := dir.Sweep(ctx, before, migration.FallbackFile)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("what is old in the fallback could not all be removed", "peer", a.fallback.Peer(), "err", err)
	}
	if removed > 0 {
		a.log.Info("what was old in the fallback is removed", "peer", a.fallback.Peer(), "files", removed)
	}
}
