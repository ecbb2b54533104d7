package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/preemption"
)

const (
	// tendEvery is how often an agent checks that its fallback takes blocks and, in a directory, removes old ones; tendIll
	// how often it checks while the fallback takes none.
	tendEvery = time.Hour
	tendIll   = time.Minute
	// checkTimeout is longer than the fallback's own patience.
	checkTimeout = 30 * time.Second
	// swept is a file that an agent puts into a directory when it begins to remove old blocks there.
	swept = "lifeboat-swept"
)

// openFallback opens the fallback that the configuration names, if any. It makes no request yet: a bucket that is away must
// not keep the agent from starting.
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
	a.fallback = &lastresort.Storage{Name: f.Name, Layout: f.Layout, Streams: f.Streams, Objects: storage}
	return nil
}

// fallbackState is how the fallback was when it was last tried.
type fallbackState struct {
	trouble string         // empty: it takes blocks
	doubt   string         // why blocks put into it may not outlive this machine
	room    *fallback.Room // its free room then; nil: it does not tell
	since   time.Time      // when it became so
	tried   time.Time
}

func (s *fallbackState) lastRoom() *fallback.Room {
	if s == nil {
		return nil
	}
	return s.room
}

// tendFallback reports a fallback that would take nothing while there is time to repair it, and removes old blocks from a
// directory. It also checks when a drain begins: otherwise the drain finds out only once peers take no more.
func (a *Agent) tendFallback(ctx context.Context) error {
	if a.storage == nil {
		return nil
	}
	var sweeping sync.WaitGroup // beside the checks: it takes hours on a large share, and for ever on one that hangs
	defer sweeping.Wait()
	sweeping.Go(func() {
		for ctx.Err() == nil {
			a.sweepFallback(ctx)
			select {
			case <-time.After(tendEvery):
			case <-ctx.Done():
			}
		}
	})
	for leaves := false; ctx.Err() == nil; {
		a.checkFallback(ctx)
		wait := tendEvery
		if f := a.fallbackIs.Load(); f != nil && f.trouble != "" {
			wait = tendIll
		}
		leaves = a.incidents.restUntilDrain(ctx, wait, leaves)
	}
	return nil
}

// restUntilDrain waits for the given time, or until the node begins to leave. left is what it returned last: whether the
// node was leaving.
func (in *incidents) restUntilDrain(ctx context.Context, wait time.Duration, left bool) (leaves bool) {
	over := time.After(wait)
	for {
		changed := in.Changes()
		stance, _ := in.Stance()
		leaves = stance.AtLeast(preemption.StanceDrain)
		if leaves && !left {
			return leaves
		}
		left = leaves
		select {
		case <-changed:
		case <-over:
			return leaves
		case <-ctx.Done():
			return leaves
		}
	}
}

func (a *Agent) checkFallback(ctx context.Context) {
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := fallback.Check(checking, a.storage)
	if ctx.Err() != nil {
		return // the agent ends, which says nothing
	}
	now := fallbackState{tried: time.Now()}
	now.since = now.tried
	if err != nil {
		now.trouble = err.Error()
	} else {
		now.doubt = a.doubtFallback(checking)
		now.room, _ = a.fallbackRoom(checking) // an error here means little: the fallback has just taken a file
	}
	was := a.fallbackIs.Load()
	if was != nil && (was.trouble == "") == (err == nil) {
		now.since = was.since
	}
	a.fallbackIs.Store(&now)
	switch {
	case err != nil && (was == nil || was.trouble == ""):
		a.log.Error("the fallback would take nothing now", "peer", a.fallback.Peer(), "err", err)
	case err == nil && was != nil && was.trouble != "":
		a.log.Info("the fallback is well again", "peer", a.fallback.Peer())
	}
	if now.doubt != "" && (was == nil || was.doubt == "") {
		a.log.Warn("blocks in the fallback may go away with this machine", "peer", a.fallback.Peer(), "why", now.doubt)
	}
}

// roomy is a storage that can say how much room it has.
type roomy interface {
	Room(ctx context.Context) (fallback.Room, error)
}

// fallbackRoom is the room that the fallback has now; nil: there is no fallback, or it does not tell.
func (a *Agent) fallbackRoom(ctx context.Context) (*fallback.Room, error) {
	dir, ok := a.storage.(roomy)
	if !ok {
		return nil, nil
	}
	room, err := dir.Room(ctx)
	if err != nil {
		return nil, err
	}
	return &room, nil
}

// sharer is a storage that may lie on one of this machine's own file systems.
type sharer interface {
	Beside(ctx context.Context, path string) (bool, error)
}

// doubtFallback says why blocks in the fallback may not outlive this machine; empty: no reason is known. The fallback is
// used all the same: a disk may be kept when its machine is not.
func (a *Agent) doubtFallback(ctx context.Context) string {
	dir, ok := a.storage.(sharer)
	if !ok {
		return ""
	}
	if own, err := dir.Beside(ctx, a.cfg.DataDir); err != nil || !own { // checkFallback has reported whatever else is wrong
		return ""
	}
	return fmt.Sprintf("%s lies on the file system of data_dir, %s: is the share mounted?", a.cfg.Fallback.Dir, a.cfg.DataDir)
}

// apiFallback says how the fallback is; nil when there is none.
func (a *Agent) apiFallback() *api.Fallback {
	if a.fallback == nil {
		return nil
	}
	f := &api.Fallback{Name: a.fallback.Name}
	if is := a.fallbackIs.Load(); is != nil {
		f.Doubt = is.doubt
		if room := is.lastRoom(); room != nil {
			f.RoomBytes = &room.Bytes
		}
		f.Trouble, f.Tried, f.Since = is.trouble, durationpb.New(time.Since(is.tried)), durationpb.New(time.Since(is.since))
	}
	return f
}

// fallbackTold is the fallback's room as the coordinator is told it: 0 while it takes nothing; nil: not known.
func (a *Agent) fallbackTold() *int64 {
	f := a.apiFallback()
	if f.GetTrouble() != "" {
		return new(int64)
	}
	return f.RoomBytes
}

// sweeper is a storage that does not remove old blocks by itself.
type sweeper interface {
	Sweep(ctx context.Context, before time.Time, ours func(name string) bool) (removed int, err error)
}

func (a *Agent) sweepFallback(ctx context.Context) {
	dir, ok := a.storage.(sweeper)
	if !ok {
		return
	}
	if _, _, at, err := a.storage.Stat(ctx, swept); err == nil && time.Since(at) < tendEvery {
		return // another agent did it: one walk over a share is enough for a fleet
	}
	if err := a.storage.Put(ctx, swept, 0, strings.NewReader(""), false); err != nil {
		return // checkFallback has reported what is wrong
	}
	var before time.Time
	if a.cfg.Fallback.Keep > 0 {
		before = time.Now().Add(-a.cfg.Fallback.Keep)
	}
	removed, err := dir.Sweep(ctx, before, lastresort.Owns)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("what is old in the fallback could not all be removed", "peer", a.fallback.Peer(), "err", err)
	}
	if removed > 0 {
		a.log.Info("what was old in the fallback is removed", "peer", a.fallback.Peer(), "files", removed)
	}
}
