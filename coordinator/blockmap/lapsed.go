package blockmap

import (
	"slices"
	"unique"
)

const (
	lapsedRows = 16 << 10
	lapsedEach = 8 // entries in a row, the newest first; the oldest makes room
)

// lapsed remembers the blocks that lost their last holder most lately: 131,072 at most, which take 3.5 MB. A reader that asks for one
// learns that the block existed and why it is gone, which nothing else in the fleet knows. Like the map of holders, it is in the
// memory of one leader.
type lapsed struct {
	rows [][]lapse // by key; nil: nothing has lapsed yet
}

type lapse struct {
	key       uint64 // a 64-bit hash of the id; two ids with the same hash count as one
	from, why unique.Handle[string]
}

func (l *lapsed) add(key uint64, from unique.Handle[string], why string) {
	if l.rows == nil {
		l.rows = make([][]lapse, lapsedRows)
	}
	row := slices.DeleteFunc(l.rows[key%lapsedRows], func(other lapse) bool { return other.key == key })
	l.rows[key%lapsedRows] = slices.Insert(row[:min(len(row), lapsedEach-1)], 0, lapse{key, from, unique.Make(why)})
}

// at returns the source of a lapsed block, and why it has no holder any more; why is empty for a block that is not known.
func (l *lapsed) at(key uint64) (from, why string) {
	if l.rows == nil {
		return "", ""
	}
	for _, one := range l.rows[key%lapsedRows] {
		if one.key == key {
			return one.from.Value(), one.why.Value()
		}
	}
	return "", ""
}
