package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/preemption"
)

const (
	// tendEvery is how often an agent checks that its fallback takes blocks and, in a directory, removes old ones; tendIll
	// how often it checks while the fallback takes none.
	tendEvery = time.Hour
	tendIll   = time.Minute
	// checkTimeout is longer than what a check of a fallback takes that is as slow with each answer as is waited for.
	checkTimeout = 2 * time.Minute
	// swept is a file that an agent puts into a directory when it begins to remove old blocks there.
	swept = "lifeboat-swept"
	// sweptAhead is how far ahead the share's clock, which dates that file, may be. A date further on is of a clock that was wrong for a
	// while, and must not keep all agents from removing anything until then.
	sweptAhead = 24 * time.Hour
)

// standby is the fallback that blocks go to which no peer takes, if the configuration names one.
type standby struct {
	cfg       fallback.Settings
	dataDir   string
	log       *slog.Logger
	incidents *incidents

	storage    fallback.Storage              // behind lastResort
	lastResort *lastresort.Storage           // nil: none is configured
	is         atomic.Pointer[fallbackState] // nil: not tried yet
}

// openFallback opens the fallback. It makes no request yet: a bucket that is away must not keep the agent from starting.
func (a *Agent) openFallback(ctx context.Context) error {
	s, f := &a.fallback, a.cfg.Fallback
	s.cfg, s.dataDir, s.log, s.incidents = f, a.cfg.DataDir, a.log, &a.incidents
	if !f.On() {
		return nil
	}
	storage, err := f.Open(ctx, a.deps.Dial)
	if err != nil {
		return fmt.Errorf("open the fallback: %w", err)
	}
	s.storage = storage
	s.lastResort = &lastresort.Storage{Name: f.Name, Layout: f.Layout, Streams: f.Streams, Objects: storage}
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

// takes reports whether the fallback took blocks when it was last tried, and had room for so many bytes.
func (s *standby) takes(bytes int64) bool {
	is := s.is.Load()
	return is != nil && is.trouble == "" && (is.room == nil || is.room.Bytes >= bytes)
}

// Run reports a fallback that would take nothing while there is time to repair it, and removes old blocks from a directory.
// It also checks when a drain begins: otherwise the drain finds out only once peers take no more.
func (s *standby) Run(ctx context.Context) error {
	if s.storage == nil {
		return nil
	}
	var sweeping sync.WaitGroup // beside the checks: it takes hours on a large share, and for ever on one that hangs
	defer sweeping.Wait()
	sweeping.Go(func() {
		for ctx.Err() == nil {
			s.sweep(ctx)
			await.Sleep(ctx, tendEvery)
		}
	})
	for leaves := false; ctx.Err() == nil; {
		s.check(ctx)
		wait := tendEvery
		if f := s.is.Load(); f != nil && f.trouble != "" {
			wait = tendIll
		}
		leaves = s.incidents.restUntilDrain(ctx, wait, leaves)
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

func (s *standby) check(ctx context.Context) {
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := fallback.Check(checking, s.storage)
	if ctx.Err() != nil {
		return // the agent ends, which says nothing
	}
	now := fallbackState{tried: time.Now()}
	now.since = now.tried
	if err != nil {
		now.trouble = err.Error()
	} else {
		now.doubt = s.doubt(checking)
		now.room, _ = s.room(checking) // an error here means little: the fallback has just taken a file
	}
	was := s.is.Load()
	if was != nil && (was.trouble == "") == (err == nil) {
		now.since = was.since
	}
	s.is.Store(&now)
	switch {
	case err != nil && (was == nil || was.trouble == ""):
		s.log.Error("the fallback would take nothing now", "peer", s.lastResort.Peer(), "err", err)
	case err == nil && was != nil && was.trouble != "":
		s.log.Info("the fallback is well again", "peer", s.lastResort.Peer())
	}
	if now.doubt != "" && (was == nil || was.doubt == "") {
		s.log.Warn("blocks in the fallback may go away with this machine", "peer", s.lastResort.Peer(), "why", now.doubt)
	}
}

// roomy is a storage that can say how much room it has.
type roomy interface {
	Room(ctx context.Context) (fallback.Room, error)
}

// room is the room that the fallback has now; nil: there is no fallback, or it does not tell.
func (s *standby) room(ctx context.Context) (*fallback.Room, error) {
	dir, ok := s.storage.(roomy)
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

// doubt says why blocks in the fallback may not outlive this machine; empty: no reason is known. The fallback is used all
// the same: a disk may be kept when its machine is not.
func (s *standby) doubt(ctx context.Context) string {
	dir, ok := s.storage.(sharer)
	if !ok {
		return ""
	}
	if own, err := dir.Beside(ctx, s.dataDir); err != nil || !own { // check has reported whatever else is wrong
		return ""
	}
	return fmt.Sprintf("%s lies on the file system of data_dir, %s: is the share mounted?", s.cfg.Dir, s.dataDir)
}

// wire says how the fallback is; nil when there is none.
func (s *standby) wire() *api.Fallback {
	if s.lastResort == nil {
		return nil
	}
	f := &api.Fallback{Name: s.lastResort.Name}
	if is := s.is.Load(); is != nil {
		f.Doubt = is.doubt
		if room := is.lastRoom(); room != nil {
			f.RoomBytes = &room.Bytes
		}
		f.Trouble, f.Tried, f.Since = is.trouble, durationpb.New(time.Since(is.tried)), durationpb.New(time.Since(is.since))
	}
	return f
}

// told is the fallback's room as the coordinator is told it: 0 while it takes nothing; nil: not known.
func (s *standby) told() *int64 {
	f := s.wire()
	if f.GetTrouble() != "" {
		return new(int64)
	}
	return f.RoomBytes
}

// sweeper is a storage that does not remove old blocks by itself.
type sweeper interface {
	Sweep(ctx context.Context, before time.Time, ours func(name string) bool) (removed int, err error)
}

func (s *standby) sweep(ctx context.Context) {
	dir, ok := s.storage.(sweeper)
	if !ok {
		return
	}
	if _, _, at, err := s.storage.Stat(ctx, swept); err == nil && time.Since(at) < tendEvery && time.Until(at) < sweptAhead {
		return // another agent did it: one walk over a share is enough for a fleet
	}
	if err := s.storage.Put(ctx, swept, 0, strings.NewReader(""), false); err != nil {
		return // check has reported what is wrong
	}
	var before time.Time
	if s.cfg.Keep > 0 {
		before = time.Now().Add(-s.cfg.Keep)
	}
	removed, err := dir.Sweep(ctx, before, lastresort.Owns)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("what is old in the fallback could not all be removed", "peer", s.lastResort.Peer(), "err", err)
	}
	if removed > 0 {
		s.log.Info("what was old in the fallback is removed", "peer", s.lastResort.Peer(), "files", removed)
	}
}
