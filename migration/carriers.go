package migration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// carriers are the lanes and the uploads of a drain that are at work now.
type carriers struct {
	source *source
	plan   *plan.Plan

	mu    sync.Mutex
	all   map[carrier]bool
	owing map[carrier]bool // that may not have given back yet what they were handed, though they may work no more
}

func newCarriers(source *source, plan *plan.Plan) *carriers {
	return &carriers{source: source, plan: plan, all: map[carrier]bool{}, owing: map[carrier]bool{}}
}

// carrier carries blocks from this node's disks to somewhere else.
type carrier interface {
	// busy returns the directory that the carrier is waiting for, and for how long.
	busy(now time.Time) (dir string, took time.Duration, ok bool)
	// giveUp leaves a carrier to the directory that it cannot read from.
	giveUp(dir string)
	// returnInflight gives back what nobody answered for.
	returnInflight(ctx context.Context, err error)
}

// heldUp is how long a lane must have waited for a read to count as held up by its disk. A read that memory serves takes less, even
// where lanes wait for a processor.
const heldUp = 5 * time.Millisecond

func (cs *carriers) join(l carrier) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all[l], cs.owing[l] = true, true
}

// settled notes that a carrier has given back all that nobody answered for.
func (cs *carriers) settled(l carrier) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.owing, l)
}

func (cs *carriers) leave(l carrier) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.all, l)
}

// lanes returns the lanes whose peers have let them begin.
func (cs *carriers) lanes() (lanes []*lane) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.all {
		if l, ok := c.(*lane); ok {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// surrender gives back what lanes hold that cannot be waited for.
func (cs *carriers) surrender() {
	cs.mu.Lock()
	lanes := slices.AppendSeq(slices.Collect(maps.Keys(cs.all)), maps.Keys(cs.owing)) // a second time gives back nothing
	cs.mu.Unlock()
	for _, l := range lanes {
		l.returnInflight(context.Background(), errors.New("it hung"))
	}
}

// look makes the plan hand out no blocks on disks that do not answer, and gives up the lanes that read from such disks.
func (cs *carriers) look(now time.Time) {
	barred := map[string]string{}
	for dir, why := range cs.source.vault.Away() {
		barred[dir] = why.Error()
	}
	for _, dir := range cs.source.dirs() {
		if !cs.source.disks.Readable(dir) {
			barred[dir] = diskio.Silence(dir).Error()
		}
	}
	cs.mu.Lock()
	lanes := slices.Collect(maps.Keys(cs.all))
	cs.mu.Unlock()
	for _, l := range lanes {
		dir, took, ok := l.busy(now)
		if !ok || took < diskio.Suspect || took < diskio.Overdue && barred[dir] == "" {
			continue
		}
		if barred[dir] == "" {
			cs.source.disks.Fault(dir, diskio.Silence(dir))
		}
		barred[dir] = diskio.Silence(dir).Error()
		l.giveUp(dir)
	}
	cs.plan.Bar(barred)
}

// crowded returns the directories that a lane should take nothing from while there is anything else, as enough other lanes wait for
// their disks. Without it all lanes would wait for the disk of the blocks that should leave first, and other disks and the link would
// rest.
func (cs *carriers) crowded(now time.Time) map[string]bool {
	var waiting []string
	cs.mu.Lock()
	lanes := len(cs.all)
	for l := range cs.all {
		if dir, took, ok := l.busy(now); ok && took >= heldUp {
			waiting = append(waiting, dir)
		}
	}
	cs.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	return cs.plan.Crowd(waiting, lanes, cs.source.disks.Disk)
}

// handOut lets take take blocks from the plan: from crowded directories only if there is nothing else.
func (cs *carriers) handOut(take func(crowded map[string]bool) (some bool)) {
	crowded := cs.crowded(time.Now())
	if !take(crowded) && len(crowded) > 0 {
		take(nil)
	}
}
