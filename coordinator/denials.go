package coordinator

import (
	"sync"
	"time"
)

// A refused caller has one log line each denialsEvery, however often it asks. At most denialsKept callers are told apart.
const (
	denialsEvery = time.Minute
	denialsKept  = 1024
)

// denials counts calls that their callers may not make. They appear in this process's log and not in the audit, where a stranger's
// refusals could push out everything else.
type denials struct {
	mu   sync.Mutex // guards seen
	seen map[string]*denial
}

type denial struct {
	told  time.Time // when it was last logged
	times int       // refusals since
}

// count notes a refusal and returns how many there were since the last log line; 0: it is too soon for another.
func (d *denials) count(what string, now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.seen[what]
	if one == nil {
		if d.seen == nil || len(d.seen) >= denialsKept {
			d.seen = map[string]*denial{}
		}
		one = &denial{}
		d.seen[what] = one
	}
	one.times++
	if now.Sub(one.told) < denialsEvery {
		return 0
	}
	times := one.times
	one.told, one.times = now, 0
	return times
}
