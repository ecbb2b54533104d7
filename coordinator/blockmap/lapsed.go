package blockmap

import (
	"slices"
	"unique"
)

const (
	lapsedRows = 16 << 10
	lapsedEach = 8 // in a row, the newest first; the oldest makes room
)

// lapsed are the last blocks that somebody held and nobody does any more: 131,072 at most, which takes 3.5 MB. Whoever asks for one
// is told that it was known, which nobody else could say. Like where blocks rest, it is known to the leader that was told.
type lapsed struct {
	rows [][]lapse // by key; nil: nothing has lapsed yet
}

type lapse struct {
	key       uint64 // a hash of the id: two of them in 2^64 are one
	from, why unique.Handle[string]
}

func (l *lapsed) add(key uint64, from unique.Handle[string], why string) {
	if l.rows == nil {
		l.rows = make([][]lapse, lapsedRows)
	}
	row := slices.DeleteFunc(l.rows[key%lapsedRows], func(other lapse) bool { return other.key == key })
	l.rows[key%lapsedRows] = slices.Insert(row[:min(len(row), lapsedEach-1)], 0, lapse{key, from, unique.Make(why)})
}

// at says which node a block came from, and why it is not held any more; why is empty where nothing is known of it.
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
