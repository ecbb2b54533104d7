package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// rack has the spools of one store's blocks that lie in dir first, or were set aside as it is shut. Stores lie apart because a peer
// may have room for one store's blocks and not for another's. A rack for each set of directories would be too many: a map output of
// Spark's lies in three, and twelve disks have 1,700 such sets.
type rack struct {
	dir    string
	store  string
	spools [ranks][sizeClasses]*Spool
}

// queue is a spool's place in the order: by rank, then as they came.
type queue struct {
	*rack
	*Spool
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

// least returns the size that each block of a queue has at least.
func (s queue) least() int64 {
	if s.class == 0 {
		return 0
	}
	return 1 << (sizeFirst + (s.class-1)*sizeStep)
}

// spool returns the spool for a block on the rack of dir, and makes it if need be.
func (p *Plan) spool(b inventory.Block, dir string) *Spool {
	store := b.ID.Store()
	i := slices.IndexFunc(p.racks, func(r *rack) bool { return r.dir == dir && r.store == store })
	if i < 0 {
		i = len(p.racks)
		p.racks = append(p.racks, &rack{dir: dir, store: store})
	}
	rank, class := rank(b.Bytes(), inTurn(b, p.worths.of(b))), sizeClass(b.Bytes())
	s := &p.racks[i].spools[rank][class]
	if *s == nil {
		*s = &Spool{room: p.cfg.Spools, Path: filepath.Join(p.cfg.Dir, fmt.Sprintf("plan-%03d-%d-%d", rank, class, i))}
		at, _ := slices.BinarySearchFunc(p.order, rank, func(s queue, rank int) int { return cmp.Compare(s.rank, rank+1) })
		p.order = slices.Insert(p.order, at, queue{p.racks[i], *s, rank, class})
	}
	return *s
}

// relieve makes room in memory by writing the tail of the fullest spool, though it does not fill a buffer: a node with many disks
// and blocks of all sizes has hundreds of spools.
func (p *Plan) relieve() bool {
	fullest := slices.MaxFunc(p.order, func(a, b queue) int { return cmp.Compare(len(a.tail), len(b.tail)) })
	err := fullest.write()
	p.noteSpool(err)
	return err == nil
}

func (p *Plan) noteSpool(err error) {
	if p.spoolErr == nil {
		p.spoolErr = err
	}
}

func (p *Plan) unspooled() (n int) {
	for _, s := range p.order {
		n += len(s.tail)
	}
	return n
}

// Trouble returns why the plan had to be kept in memory; nil: it had not.
func (p *Plan) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoolErr
}

func (p *Plan) dirs(b inventory.Block) []string {
	if p.cfg.Where == nil {
		return nil
	}
	return p.cfg.Where(b)
}

// Bar replaces the directories that do not answer, and what to say of each.
func (p *Plan) Bar(dirs map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maps.Equal(p.barred, dirs) {
		p.barred = dirs
		p.changed.Tell()
	}
}

// shuts reports whether blocks in a directory are not to be handed out now.
func (p *Plan) shuts(dir string) bool { return p.crowded[dir] || p.barred[dir] != "" }

// shut returns the first of a block's directories that is shut.
func (p *Plan) shut(b inventory.Block) (dir string, is bool) {
	if len(p.barred) == 0 && len(p.crowded) == 0 {
		return "", false
	}
	dirs := p.dirs(b)
	i := slices.IndexFunc(dirs, p.shuts)
	if i < 0 {
		return "", false
	}
	return dirs[i], true
}

// setAside moves a block that also lies in a shut directory to the rack of that directory, and reports whether it did.
func (p *Plan) setAside(b inventory.Block) bool {
	dir, is := p.shut(b)
	if !is {
		return false
	}
	p.noteSpool(p.spool(b, dir).Push(b))
	p.changed.Tell() // fewer blocks are left for lanes that wait
	return true
}

// Crowd returns the directories on crowded disks. A disk is crowded when it holds up its share of the lanes, if lanes are shared
// out evenly among the plan's disks. waiting has, for each lane that is held up, the directory that it waits for.
func (p *Plan) Crowd(waiting []string, lanes int, disk func(dir string) string) (crowded map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := map[string]string{}
	heldUp := map[string]int{} // by disk
	for _, r := range p.racks {
		on[r.dir] = disk(r.dir)
		heldUp[on[r.dir]] = 0
	}
	for _, dir := range waiting {
		on[dir] = disk(dir)
		heldUp[on[dir]]++
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

// barsBlock returns what to say of the first of a block's directories that does not answer; "": all do.
func (p *Plan) barsBlock(b inventory.Block) string {
	if len(p.barred) == 0 {
		return ""
	}
	for _, dir := range p.dirs(b) {
		if why := p.barred[dir]; why != "" {
			return why
		}
	}
	return ""
}

// Frozen returns the directories with blocks of the plan that do not answer, once only blocks in such directories are left (idle).
func (p *Plan) Frozen() (dirs []string, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle = p.empty(); len(p.barred) == 0 || !idle {
		return nil, idle
	}
	for _, s := range p.order {
		if s.Left.Blocks > 0 {
			dirs = append(dirs, s.dir)
		}
	}
	for _, e := range p.returned {
		dirs = append(dirs, p.dirs(e.Block)...)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	return slices.DeleteFunc(dirs, func(dir string) bool { return p.barred[dir] == "" }), true
}
