package disks

import (
	"fmt"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// How errors add up, as in Celeborn's ObservedDevice: more than 64 errors within ten minutes make a disk critical, and
// it stays so until 32 or fewer of the last ten minutes are left.
const (
	errorSpan     = 10 * time.Minute
	criticalAbove = 64
	criticalUntil = 32
)

// How long a disk must be well before it is believed: two good probes in a row, twice as many after each relapse.
const (
	calmAtFirst = 2
	calmAtMost  = 32
	flapSpan    = 10 * time.Minute // a fault this soon after the last one is a relapse
)

// judge turns findings into a state that can be acted on. Bad news counts at once. Good news has to last, and after
// each relapse longer. It reads no clock.
type judge struct {
	state finding
	since time.Time

	calm   int     // probes in a row that were better than the state
	worst  finding // the worst of those
	want   int     // how many of them are needed
	left   time.Time
	errors []time.Time // the last criticalAbove+1, oldest first
	hangs  bool        // the last finding was a hang
}

// see takes a finding and reports whether the state changed. A finding from a mere look (whole is false) can make the
// state worse, never better.
func (j *judge) see(now time.Time, f finding, whole bool) (changed bool) {
	if f.Health.broken() && !(f.Health == IOHang && j.hangs) { // a hanging probe is one error, however often it is looked at
		j.count(now)
	}
	j.hangs = f.Health == IOHang
	f = j.escalate(now, f)
	switch old := j.state.Health; {
	case f.Health > old:
		j.enter(now, f)
		return true
	case f.Health == old:
		j.state.Why, j.calm = f.Why, 0
		return false
	case !whole:
		return false
	}
	if j.calm == 0 || f.Health > j.worst.Health {
		j.worst = f
	}
	j.calm++
	if j.calm < j.want {
		return false
	}
	j.left = now
	j.state, j.since, j.calm = j.worst, now, 0
	return true
}

func (j *judge) enter(now time.Time, f finding) {
	switch {
	case f.Health <= Healthy:
	case !j.left.IsZero() && now.Sub(j.left) < flapSpan:
		j.want = min(2*j.want, calmAtMost)
	case j.state.Health <= Healthy:
		j.want = calmAtFirst
	}
	j.state, j.since, j.calm = f, now, 0
}

// count notes an error. It keeps only the newest, as many as can matter.
func (j *judge) count(now time.Time) {
	if len(j.errors) > criticalAbove {
		j.errors = slices.Delete(j.errors, 0, 1)
	}
	j.errors = append(j.errors, now)
}

// recent returns how many errors still count, up to criticalAbove+1.
func (j *judge) recent(now time.Time) int {
	n := 0
	for _, at := range j.errors {
		if now.Sub(at) < errorSpan {
			n++
		}
	}
	return n
}

func (j *judge) escalate(now time.Time, f finding) finding {
	n := j.recent(now)
	if f.Health >= Critical || n <= criticalUntil || n <= criticalAbove && j.state.Health != Critical {
		return f
	}
	count := fmt.Sprint(n)
	if n > criticalAbove {
		count = fmt.Sprintf("more than %d", criticalAbove)
	}
	why := fmt.Sprintf("%s errors within %v", count, errorSpan)
	if f.Why != "" {
		why += ", the last: " + f.Why
	}
	return finding{Critical, why}
}

// why returns the reason for the state, and how far the disk has got in proving that it is over.
func (j *judge) why() string {
	if j.calm == 0 || j.state.Why == "" {
		return j.state.Why
	}
	return fmt.Sprintf("%s; well again for %d of %d probes", j.state.Why, j.calm, j.want)
}

// pace judges whether probes are slow: they are once most of the last three took too long, until most take less than
// half of that.
type pace struct {
	last [3]time.Duration
	n    int
	slow bool
}

func (p *pace) see(took, limit time.Duration) finding {
	p.last[p.n%len(p.last)] = took
	p.n++
	if p.n < 2 {
		return finding{Health: Healthy}
	}
	some := slices.Clone(p.last[:min(p.n, len(p.last))])
	slices.Sort(some)
	middle := some[(len(some)-1)/2]
	if p.slow {
		limit /= 2
	}
	if p.slow = middle >= limit; !p.slow {
		return finding{Health: Healthy}
	}
	return finding{Slow, fmt.Sprintf("most of the last probes took %v or longer to write and sync: want less than %v",
		middle.Round(time.Millisecond), limit)}
}

// crowd judges whether a file system is too full: it is once only the reserve is free, or nearly no inode, until there
// is a margin above that.
type crowd struct {
	high bool
}

// inodesLeft is the share of inodes below which a disk counts as full: every block needs one, some layouts three.
const inodesLeft = 0.001

func (c *crowd) see(s extent, reserve int64) finding {
	low, lowInodes := reserve, int64(inodesLeft*float64(s.Inodes))
	if c.high {
		low += max(low/4, s.Total/100)
		lowInodes *= 2
	}
	full, out := s.Free <= low, s.Inodes > 0 && s.InodesFree <= lowInodes
	switch c.high = full || out; {
	case full:
		return finding{HighUsage, fmt.Sprintf("%s of %s are free: want more than %s", config.Bytes(s.Free).Rough(), config.Bytes(s.Total).Rough(), config.Bytes(low).Rough())}
	case out:
		return finding{HighUsage, fmt.Sprintf("%d inodes of %d are free: want more than %d", s.InodesFree, s.Inodes, lowInodes)}
	}
	return finding{Health: Healthy}
}
