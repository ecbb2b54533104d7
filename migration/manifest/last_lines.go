package manifest

import (
	"hash/maphash"
	"maps"
	"os"
)

// LastLines has the blocks of an account not all of whose lines count, and which line of each does. Where an engine writes all of its files
// anew, these are all blocks: some fifty bytes of memory each, and nothing that the garbage collector looks into. The zero value has none.
type LastLines struct {
	seeds [2]maphash.Seed
	of    map[[2]uint64]lastLine // by a hash of the id that is long enough for chance not to matter
}

// lastLine is what is known of a block's lines.
type lastLine struct {
	number  uint32 // of the last one, counted from 0
	version uint32 // a hash of the version that the last one names
	tag     uint32 // a hash of its tag
	lines   uint8  // how many there are; 2: or more
	void    bool   // the last one does not count either
}

func newLastLines() LastLines {
	return LastLines{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, map[[2]uint64]lastLine{}}
}

func (l LastLines) key(id string) [2]uint64 {
	return [2]uint64{maphash.String(l.seeds[0], id), maphash.String(l.seeds[1], id)}
}

// Any reports whether there are such blocks.
func (l LastLines) Any() bool { return len(l.of) > 0 }

// Counts reports whether a line of a block counts, by its number in the file, from 0.
func (l LastLines) Counts(id string, number int) bool {
	is, several := l.at(id)
	return !several || is.counts(number)
}

// Became reports whether the last line of a block names another version than e, and whether even that last line does not count.
func (l LastLines) Became(e Entry) (another, void bool) {
	is, _ := l.at(e.ID)
	return is.version != l.hash(e.Version), is.void
}

// Names reports whether a block's last line counts, and has the tag of this one.
func (l LastLines) Names(e Entry) bool {
	is, several := l.at(e.ID)
	return several && !is.void && is.tag == l.hash(e.Tag())
}

func (l LastLines) at(id string) (is lastLine, has bool) {
	if len(l.of) == 0 {
		return is, false
	}
	is, has = l.of[l.key(id)]
	return is, has
}

func (l LastLines) hash(text string) uint32 { return uint32(maphash.String(l.seeds[0], text)) }

// take takes in the next line of a block.
func (l LastLines) take(number int, e Entry, was lastLine) {
	l.of[l.key(e.ID)] = lastLine{uint32(number), l.hash(e.Version), l.hash(e.Tag()), min(was.lines+1, 2), e.Outcome == Voided}
}

// counts reports whether a line counts.
func (is lastLine) counts(number int) bool { return uint32(number) == is.number && !is.void }

// lastLinesIn finds the blocks not all of whose lines count. Its memory is a lastLine for each of them, and for a few blocks that only seem
// to be such, and 32 bits for each line.
func (l *Ledger) lastLinesIn(path string) (LastLines, error) {
	last := newLastLines()
	info, err := os.Stat(path)
	if err != nil {
		return last, err
	}
	met := NewMetIDs(32 * info.Size() / lineBytes)
	for e, err := range l.named() {
		if err != nil {
			return last, err
		}
		met.Add(e.ID)
	}
	for e, err := range Read(path) {
		if err != nil {
			return last, err
		}
		if met.Add(e.ID) {
			last.of[last.key(e.ID)] = lastLine{}
		}
	}
	n := -1
	for e, err := range Read(path) {
		if err != nil {
			return last, err
		}
		n++
		if was, has := last.at(e.ID); has {
			last.take(n, e, was)
		}
	}
	for e, err := range l.named() {
		if err != nil {
			return last, err
		}
		if is, has := last.at(e.ID); has {
			is.void = true
			last.of[last.key(e.ID)] = is
		}
	}
	maps.DeleteFunc(last.of, func(_ [2]uint64, is lastLine) bool { return is.lines < 2 && !is.void })
	return last, nil
}

// lineBytes is what the shortest line of an account has.
const lineBytes = 64
