package migration

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"time"
)

// rack is the plan of what lies in the same directories.
type rack struct {
	dirs   []string
	spools [ranks][sizeClasses]*spool
}

// queue is a spool's place in the order: by rank, then as they came.
type queue struct {
	*rack
	*spool
	rank, class int
}

// Blocks of one rank lie apart by size, so that in the end those that still fit can be had without going through those
// that do not. A class reaches from 1 MiB x 16^(n-1) to 16 times that; the first begins at 0, the last has no end.
const (
	sizeClasses = 5
	sizeStep    = 4 // bits
	sizeFirst   = 20
)

func sizeClass(bytes int64) int {
	n := bits.Len64(uint64(bytes)) - 1 - sizeFirst
	if n < 0 {
		return 0
	}
	return min(n/sizeStep+1, sizeClasses-1)
}

// bounds are what the blocks of a queue have at least, and less than what.
func (s queue) bounds() (least, below int64) {
	if s.class > 0 {
		least = 1 << (sizeFirst + (s.class-1)*sizeStep)
	}
	if s.class == sizeClasses-1 {
		return least, math.MaxInt64
	}
	return least, 1 << (sizeFirst + s.class*sizeStep)
}

// thaw is how long a plan waits for disks that do not answer once nothing else is left: one period of the probes that tell
// of them, so that what was said last is said once more.
const thaw = 10 * time.Second

// spool is where a block is put.
func (p *plan) spool(b Block) *spool {
	dirs := p.dirs(b)
	i := slices.IndexFunc(p.racks, func(r *rack) bool { return slices.Equal(r.dirs, dirs) })
	if i < 0 {
		i = len(p.racks)
		p.racks = append(p.racks, &rack{dirs: dirs})
	}
	rank, class := rank(b.Bytes(), inTurn(b, p.worths.of(b))), sizeClass(b.Bytes())
	s := &p.racks[i].spools[rank][class]
	if *s == nil {
		*s = &spool{path: filepath.Join(p.dir, fmt.Sprintf("plan-%03d-%d-%d", rank, class, i))}
		at, _ := slices.BinarySearchFunc(p.order, rank, func(s queue, rank int) int { return cmp.Compare(s.rank, rank+1) })
		p.order = slices.Insert(p.order, at, queue{p.racks[i], *s, rank, class})
	}
	return *s
}

// relieve makes room in memory by writing what a spool has there, though it fills no buffer: a node with many disks and blocks of
// all sizes has hundreds of spools.
func (p *plan) relieve() bool {
	fullest := slices.MaxFunc(p.order, func(a, b queue) int { return cmp.Compare(len(a.tail), len(b.tail)) })
	err := fullest.write()
	p.noteSpool(err)
	return err == nil
}

func (p *plan) noteSpool(err error) {
	if p.spoolErr == nil {
		p.spoolErr = err
	}
}

func (p *plan) unspooled() (n int) {
	for _, s := range p.order {
		n += len(s.tail)
	}
	return n
}

// trouble says why the plan had to be kept in memory, if it had to.
func (p *plan) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoolErr
}

func (p *plan) dirs(b Block) []string {
	if p.where == nil {
		return nil
	}
	return p.where(b)
}

// bar says anew which directories do not answer.
func (p *plan) bar(dirs map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maps.Equal(p.barred, dirs) {
		p.barred, p.alone = dirs, time.Time{}
		p.wake()
	}
}

// bars returns what to say of the first of the directories that does not answer.
func (p *plan) bars(dirs []string) string {
	for _, dir := range dirs {
		if why := p.barred[dir]; why != "" {
			return why
		}
	}
	return ""
}

// crowd returns the directories on disks that hold up as many lanes as is their share, when lanes are shared out evenly among the
// disks that the plan is of. waiting has the directory of each lane that is held up.
func (p *plan) crowd(waiting []string, lanes int, disk func(dir string) string) (crowded map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := map[string]string{}
	heldUp := map[string]int{} // by disk
	for _, r := range p.racks {
		for _, dir := range r.dirs {
			on[dir] = disk(dir)
			heldUp[on[dir]] = 0
		}
	}
	for _, dir := range waiting {
		heldUp[disk(dir)]++
	}
	for dir, disk := range on {
		if heldUp[disk]*len(heldUp) >= lanes {
			if crowded == nil {
				crowded = map[string]bool{}
			}
			crowded[dir] = true
		}
	}
	return crowded
}

func (p *plan) crowds(dirs []string) bool {
	return len(p.crowded) > 0 && slices.ContainsFunc(dirs, func(dir string) bool { return p.crowded[dir] })
}

func (p *plan) barsBlock(b Block) string {
	if len(p.barred) == 0 {
		return ""
	}
	return p.bars(p.dirs(b))
}

// forThaw is how long to wait for what lies on disks that do not answer, now that nothing else is left.
func (p *plan) forThaw(now time.Time) time.Duration {
	if len(p.barred) == 0 || !p.stranded() {
		return 0
	}
	if p.alone.IsZero() {
		p.alone = now
	}
	return max(0, thaw-now.Sub(p.alone))
}

// stranded reports whether anything is left at all.
func (p *plan) stranded() bool {
	for _, s := range p.order {
		if s.left.Blocks > 0 {
			return true
		}
	}
	return len(p.returned) > 0
}
