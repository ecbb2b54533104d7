package migration

import (
	"cmp"
	"slices"
	"time"
)

// simResult is what became of the blocks of the nodes that left.
type simResult struct {
	value, bytes, achievable float64 // shares of what was there
	again, wasted            float64 // shares of what was sent
	worst                    int
	leavers                  int
}

func (r simResult) ofAchievable() float64 { return r.value / r.achievable }

func (f *simFleet) result() (r simResult) {
	var value, bytes, savedValue, savedBytes float64
	for i, n := range f.at {
		value += f.worth[i].Seconds()
		bytes += float64(f.size[i])
		if n != nil && n.gone.IsZero() {
			savedValue += f.worth[i].Seconds()
			savedBytes += float64(f.size[i])
		}
	}
	r.value, r.bytes, r.worst = savedValue/value, savedBytes/bytes, f.worst
	r.again, r.wasted = f.again/f.sent, f.wasted/f.sent
	r.achievable = f.achievable() / value
	for _, n := range f.nodes {
		if !n.noticed.IsZero() {
			r.leavers++
		}
	}
	return r
}

// achievable returns a value that no policy can exceed: each leaving node sends over its full link until sending must
// stop, the blocks that are worth most a byte first, in pieces of any size, to nodes that stay and have room and links,
// and are otherwise perfect.
func (f *simFleet) achievable() (value float64) {
	first, last := time.Time{}, time.Time{}
	left := map[*simNode]float64{}
	for _, n := range f.nodes {
		if n.noticed.IsZero() {
			continue
		}
		left[n] = n.link * n.until.Sub(n.noticed).Seconds()
		if first.IsZero() || n.noticed.Before(first) {
			first = n.noticed
		}
		if n.until.After(last) {
			last = n.until
		}
	}
	sinks := 0.
	for _, n := range f.nodes {
		if n.noticed.IsZero() {
			room := float64(n.room)
			for _, i := range n.held {
				room += float64(f.size[i])
			}
			sinks += min(room, min(n.link, n.disk)*last.Sub(first).Seconds())
		}
	}
	all := make([]int, len(f.size))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Compare(float64(f.worth[b])/float64(f.size[b]), float64(f.worth[a])/float64(f.size[a]))
	})
	for _, i := range all {
		n := f.born[i]
		part := min(float64(f.size[i]), left[n], sinks)
		left[n] -= part
		sinks -= part
		value += f.worth[i].Seconds() * part / float64(f.size[i])
	}
	return value
}
