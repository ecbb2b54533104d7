package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// evacuateAgain is how long after the end of its evacuation a disk that is still dying is looked through again: engines may
// go on writing to it, and a fleet that had no room may have some.
const evacuateAgain = 10 * time.Minute

// lookAtDying is how often the agent checks whether it is time for that.
const lookAtDying = 30 * time.Second

// Run empties the disks that are to be emptied, and orders that for those that are dying, until ctx ends.
func (e *evacuations) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { e.saveDisks(ctx) })
	running.Go(func() { e.evacuate(ctx) })
	running.Wait()
	return nil
}

// saveDisks looks after disks that are dying, until ctx ends.
func (e *evacuations) saveDisks(ctx context.Context) {
	tick := time.NewTicker(lookAtDying)
	defer tick.Stop()
	for {
		changed := e.disks.Changed()
		e.saveDying()
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// saveDying orders the evacuation of disks that are dying, and drops it for those that turned out well.
func (e *evacuations) saveDying() {
	now := time.Now()
	auto := e.limits.Load().Evacuate
	for _, d := range e.disks.monitor.Snapshot() {
		v, asked := e.of(d.Path)
		if asked && v.By == byOperator {
			continue
		}
		var err error
		switch dying := d.Health.Dying(); {
		case auto && dying && (!asked || !v.Ended.IsZero() && now.Sub(v.Ended) >= evacuateAgain):
			e.log.Warn("a disk is dying: its blocks are carried elsewhere", "disk", d.Path, "health", d.Health, "why", d.Why)
			err = e.ask(d.Path, d.Health.String(), now)
		case asked && (d.Health == disks.Healthy || d.Health == disks.Slow):
			_, err = e.drop(func(old evacuation) bool { return old.ID == v.ID })
		}
		if err != nil {
			e.log.Error("cannot write which disks are to be evacuated: a restart would forget it", "disk", d.Path, "err", err)
		}
	}
}

// evacuate empties the disks that are to be emptied, one after the other, until ctx ends.
func (e *evacuations) evacuate(ctx context.Context) {
	for ctx.Err() == nil {
		changed, notices, health := e.changed.Next(), e.incidents.Changes(), e.disks.Changed()
		if v, ok := e.next(e.mayEmpty); ok {
			e.empties(ctx, v)
			continue
		}
		select {
		case <-changed:
		case <-notices:
		case <-health:
		case <-ctx.Done():
		}
	}
}

// mayEmpty says whether an evacuation may run now. A node that leaves carries all it has anyway, and a disk that does not
// answer must not keep others waiting.
func (e *evacuations) mayEmpty(v evacuation) bool {
	return !e.incidents.carries() && e.disks.Readable(v.Path) && e.wanted(v.ID)
}

// carries says whether the open incident has all blocks of the node carried away.
func (in *incidents) carries() bool {
	stance, _ := in.Stance()
	return stance.AtLeast(preemption.StancePreCopy)
}

// empties runs one evacuation, at the rate of copying ahead: the node serves on meanwhile.
func (e *evacuations) empties(ctx context.Context, v evacuation) {
	began := time.Now()
	cfg := e.drainConfig(v.ID, e.accounts(v.ID), e.limits.Load().Drain.PreCopyBytesPerSecond)
	cfg.Settle = nil // what peers send meanwhile lands on other disks
	cfg.Only, cfg.Lapsed = []string{v.Path}, e.fleet.lapsed
	d := migration.NewDrain(cfg)
	running, stop := context.WithTimeout(ctx, e.limits.Load().Drain.Timeout)
	defer stop()
	e.begin(v.ID, d)
	e.limit(e.limits.Load().Drain) // it may have changed while the drain was made
	defer e.begin("", nil)
	e.log.Info("evacuating", "disk", v.Path, "by", v.By)
	overtaken := false
	var watch sync.WaitGroup
	watch.Go(func() { overtaken = e.overtaken(running, v, stop) })
	sum, err := d.Run(running)
	stop()
	watch.Wait()
	if !e.wanted(v.ID) {
		e.log.Info("the evacuation was taken back", "disk", v.Path, "blocks", sum.Moved.Blocks)
		e.leave(v.ID)
		return
	}
	if ctx.Err() != nil || overtaken {
		return // it goes on after a restart, once the node stays, the disk answers, or the dying one is empty
	}
	if err != nil {
		e.log.Error("the manifest of the evacuation is not complete", "disk", v.Path, "err", err)
	}
	level := slog.LevelInfo
	if sum.Lost.Blocks > 0 {
		level = slog.LevelError
	}
	e.log.Log(ctx, level, "evacuated", "disk", v.Path, "blocks", sum.Moved.Blocks, "bytes", sum.Moved.Bytes, "left", sum.Lost.Blocks,
		"skipped", sum.Skipped.Blocks, "took", time.Since(began).Round(time.Millisecond))
	if err := e.end(v.ID, sum, time.Now()); err != nil {
		e.log.Warn("cannot write that the disk is evacuated: a restart would do it again", "disk", v.Path, "err", err)
	}
}

// overtaken stops an evacuation that may run no longer, or before which another comes, and then returns true. It returns false
// when ctx ends first.
func (e *evacuations) overtaken(ctx context.Context, v evacuation, stop context.CancelFunc) bool {
	for {
		changed, notices, health := e.changed.Next(), e.incidents.Changes(), e.disks.Changed()
		if first, ok := e.next(e.mayEmpty); !e.mayEmpty(v) || ok && first.before(v) {
			stop()
			return true
		}
		select {
		case <-changed:
		case <-notices:
		case <-health:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *local) EvacuateDisk(_ context.Context, r *api.EvacuateDiskRequest) (*api.EvacuateDiskReply, error) {
	a := l.agent
	paths := a.below(r.Path)
	if len(paths) == 0 {
		return nil, status.Errorf(codes.NotFound, "no directory of the configuration is at or below %q: lifeboat disks lists them", r.Path)
	}
	ours := func(v evacuation) bool { return slices.Contains(paths, v.Path) }
	if r.Cancel {
		dropped, err := a.evacuations.drop(ours)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.fleet.Nudge()
		reply := &api.EvacuateDiskReply{}
		for _, v := range dropped {
			was := a.evacuations.wireOne(v)
			was.State = "cancelled" // it may yet run for a moment
			reply.Evacuations = append(reply.Evacuations, was)
		}
		return reply, nil
	}
	for _, p := range paths {
		if err := a.evacuations.ask(p, byOperator, time.Now()); err != nil {
			return nil, status.Error(codes.Internal, err.Error()) // an order that a restart would forget is refused
		}
	}
	a.fleet.Nudge()
	return &api.EvacuateDiskReply{Evacuations: a.evacuations.wire(ours)}, nil
}

func (e *evacuations) wire(which func(evacuation) bool) (all []*api.Evacuation) {
	for _, v := range e.list() {
		if which(v) {
			all = append(all, e.wireOne(v))
		}
	}
	return all
}

func (e *evacuations) wireOne(v evacuation) *api.Evacuation {
	w := &api.Evacuation{Path: v.Path, State: "waiting", By: v.By, Age: durationpb.New(time.Since(v.At))}
	if p, running := e.progress(v.ID); running {
		w.State, w.Progress = "running", apiProgress(p)
	} else if v.Sum != nil {
		w.State, w.Progress = "done", apiSummary(v.Sum)
	}
	return w
}
