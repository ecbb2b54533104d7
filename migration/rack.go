package migration

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// rack is the plan of what lies in the same directories.
type rack struct {
	dirs   []string
	spools [ranks]*spool
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
	s := &p.racks[i].spools[rank(b)]
	if *s == nil {
		*s = &spool{path: filepath.Join(p.dir, fmt.Sprintf("plan-%02d-%d", rank(b), i))}
	}
	return *s
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

func (p *plan) barsBlock(b Block) string {
	if len(p.barred) == 0 {
		return ""
	}
	return p.bars(p.dirs(b))
}

func (p *plan) all() iter.Seq2[*rack, *spool] {
	return func(yield func(*rack, *spool) bool) {
		for rank := range ranks {
			for _, r := range p.racks {
				if s := r.spools[rank]; s != nil && !yield(r, s) {
					return
				}
			}
		}
	}
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
	for _, s := range p.all() {
		if s.left.Blocks > 0 {
			return true
		}
	}
	return len(p.returned) > 0
}
