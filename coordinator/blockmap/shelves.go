package blockmap

import (
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"unique"
)

// sheetRows is how many rows one sheet has. When less than a quarter of a full sheet's rows are live, tidy moves them to the open
// sheet and frees the full one. So rows and names take at most four times the room that they need, and one sheet for each node,
// whatever comes and goes.
const sheetRows = 1024

// shelf has the rows of one node, in the order in which it reported them. Rows and names have no pointers in them.
type shelf struct {
	node   string
	number uint32
	sheets []*sheet // nil: freed by tidy
	unused []uint32 // the numbers of the freed ones
	open   uint32   // the sheet that is being filled
	count  int
	size   int // of the names and scopes on the sheets
}

type sheet struct {
	kinds []kind // scope and source, shared by consecutive rows
	rows  []row
	text  []byte // the names of the rows, one after the other
	gone  int
	size  int
}

type kind struct{ scope, from unique.Handle[string] }

// row is one block at one node.
type row struct {
	bytes int64
	next  place  // of another row whose id has the same hash: mostly the same block at another holder
	end   uint32 // of the name in text; the name begins where that of the row before ends
	kind  uint16
	gone  bool
}

// place is where a row is; the zero place is nowhere.
type place struct{ shelf, row uint32 }

// sheet returns the sheet of row n, and its index there.
func (s *shelf) sheet(n uint32) (p *sheet, i int) { return s.sheets[n/sheetRows], int(n % sheetRows) }

func (s *shelf) what(n uint32) Landed {
	p, i := s.sheet(n)
	return Landed{p.rows[i].bytes, p.kinds[p.rows[i].kind].from}
}

// all yields the live rows: number and key.
func (s *shelf) all() iter.Seq2[uint32, Key] {
	return func(yield func(uint32, Key) bool) {
		if s == nil {
			return
		}
		for n, p := range s.sheets {
			for i, k := range p.all() {
				if !yield(uint32(n*sheetRows+i), k) {
					return
				}
			}
		}
	}
}

// all yields the live rows of a sheet. The names share one string.
func (p *sheet) all() iter.Seq2[int, Key] {
	return func(yield func(int, Key) bool) {
		if p == nil {
			return
		}
		text, start := string(p.text), uint32(0)
		for i, r := range p.rows {
			if !r.gone && !yield(i, Key{p.kinds[r.kind].scope, text[start:r.end]}) {
				return
			}
			start = r.end
		}
	}
}

func (p *sheet) is(i int, k Key) bool {
	start := uint32(0)
	if i > 0 {
		start = p.rows[i-1].end
	}
	return string(p.text[start:p.rows[i].end]) == k.Name && p.kinds[p.rows[i].kind].scope == k.Scope
}

// add writes a row on the open sheet, which must have room.
func (s *shelf) add(k Key, what Landed, next place) place {
	p, of, size := s.sheets[s.open], kind{k.Scope, what.From}, len(k.Name)
	if last := len(p.kinds) - 1; last < 0 || p.kinds[last] != of {
		p.kinds = append(p.kinds, of)
		size += len(k.Scope.Value())
	}
	p.size, s.size = p.size+size, s.size+size
	p.text = append(p.text, k.Name...)
	p.rows = append(p.rows, row{bytes: what.Bytes, next: next, end: uint32(len(p.text)), kind: uint16(len(p.kinds) - 1)})
	s.count++
	return place{s.number, s.open*sheetRows + uint32(len(p.rows)-1)}
}

// turn opens a new sheet. The first sheet of a shelf is allocated as it fills, for many nodes hold few blocks; later ones at once.
func (s *shelf) turn() {
	p := &sheet{}
	if len(s.sheets) > 0 {
		p.rows = make([]row, 0, sheetRows)
		p.text = make([]byte, 0, len(s.sheets[s.open].text))
	}
	if last := len(s.unused) - 1; last >= 0 {
		s.open, s.unused = s.unused[last], s.unused[:last]
		s.sheets[s.open] = p
		return
	}
	s.open, s.sheets = uint32(len(s.sheets)), append(s.sheets, p)
}

// newShelf makes a shelf for a node that has none.
func (b *Map) newShelf(node string) *shelf {
	s := &shelf{node: node}
	s.turn()
	b.putUp(s)
	return s
}

// putUp gives a shelf a number, and adds its rows to the index.
func (b *Map) putUp(s *shelf) {
	n := slices.Index(b.shelves[1:], nil) + 1
	if n == 0 {
		n, b.shelves = len(b.shelves), append(b.shelves, nil)
	}
	s.number, b.shelves[n], b.numbers[s.node] = uint32(n), s, uint32(n)
	for n, k := range s.all() {
		h := b.hash(k)
		if !b.isHeld(h, k) {
			b.tally(k, 1)
		}
		at := place{s.number, n}
		b.row(at).next, b.at[h] = b.at[h], at
	}
}

// put notes a block on a shelf, and reports whether the shelf did not have it before. It fails when the shelf has as many blocks or
// names as one node may report.
func (b *Map) put(s *shelf, k Key, what Landed) (isNew bool, err error) {
	if full := s.open; len(s.sheets[full].rows) == sheetRows {
		s.turn()
		b.tidy(s, full)
	}
	h := b.hash(k)
	first, known := b.at[h], false
	for at := range b.rowsOf(first, k) {
		known = true
		if at.shelf != s.number {
			continue
		}
		if s.what(at.row).From == what.From {
			b.row(at).bytes = what.Bytes
			return false, nil
		}
		b.drop(s, k, "") // its source has changed, and a row shares that with its neighbours: it needs a new row
		_, err := b.put(s, k, what)
		return false, err
	}
	if s.size >= maxHeldNames {
		return false, fmt.Errorf("node %s reports landed blocks whose names take more than %d bytes: the rest is found by asking it", s.node, maxHeldNames)
	}
	if s.count >= maxHeldBlocks {
		return false, fmt.Errorf("node %s reports more than %d landed blocks: the rest is found by asking it", s.node, maxHeldBlocks)
	}
	if !known {
		b.tally(k, 1)
	}
	b.at[h] = s.add(k, what, first)
	return true, nil
}

// drop removes a block from a shelf, and returns what was reported of it. If no other node has the block, it is remembered as lapsed
// with why; an empty why remembers nothing.
func (b *Map) drop(s *shelf, k Key, why string) (was Landed, had bool) {
	h := b.hash(k)
	at, had := b.find(s, h, k)
	if !had {
		return Landed{}, false
	}
	was = s.what(at.row)
	b.unlink(h, at, k, why)
	p, i := s.sheet(at.row)
	p.rows[i].gone = true
	p.gone++
	s.count--
	if n := at.row / sheetRows; n != s.open {
		b.tidy(s, n)
	}
	return was, true
}

// tidy frees full sheet n if less than a quarter of its rows are live, and moves those to the open sheet.
func (b *Map) tidy(s *shelf, n uint32) {
	p := s.sheets[n]
	if 4*p.gone <= 3*sheetRows {
		return
	}
	for i, k := range p.all() {
		if full := s.open; len(s.sheets[full].rows) == sheetRows {
			s.turn()
			defer b.tidy(s, full)
		}
		r := p.rows[i]
		s.count--
		b.point(b.hash(k), place{s.number, n*sheetRows + uint32(i)}, s.add(k, Landed{r.bytes, p.kinds[r.kind].from}, r.next))
	}
	s.size -= p.size
	s.sheets[n] = nil
	s.unused = append(s.unused, n)
}

// unlink takes a row out of the index. If no other node has the block, it lapses with why.
func (b *Map) unlink(h uint32, at place, k Key, why string) {
	b.point(h, at, b.row(at).next)
	if b.isHeld(h, k) {
		return
	}
	b.tally(k, -1)
	if why != "" {
		b.lapsed.add(b.longHash(k), b.shelves[at.shelf].what(at.row).From, why)
	}
}

// point redirects the reference to one row, in the index or in another row's next, to another row.
func (b *Map) point(h uint32, from, to place) {
	at := b.at[h]
	switch {
	case at != from:
		for b.row(at).next != from {
			at = b.row(at).next
		}
		b.row(at).next = to
	case to != (place{}):
		b.at[h] = to
	default:
		delete(b.at, h)
	}
}

func (b *Map) row(at place) *row {
	p, i := b.shelves[at.shelf].sheet(at.row)
	return &p.rows[i]
}

// rowsOf yields the places of a block's rows, one for each holder. first is the first row in the chain of its hash.
func (b *Map) rowsOf(first place, k Key) iter.Seq[place] {
	return func(yield func(place) bool) {
		for at := first; at != (place{}); at = b.row(at).next {
			if p, i := b.shelves[at.shelf].sheet(at.row); p.is(i, k) && !yield(at) {
				return
			}
		}
	}
}

// find returns the place of a block's row on a shelf, if it has one.
func (b *Map) find(s *shelf, h uint32, k Key) (at place, found bool) {
	for at := range b.rowsOf(b.at[h], k) {
		if b.shelves[at.shelf] == s {
			return at, true
		}
	}
	return place{}, false
}

func (b *Map) isHeld(h uint32, k Key) bool {
	for range b.rowsOf(b.at[h], k) {
		return true
	}
	return false
}

// hash is 32 bits long to save memory. Among millions of ids some share a hash, so rowsOf compares the ids too.
func (b *Map) hash(k Key) uint32 { return uint32(b.longHash(k)) }

func (b *Map) longHash(k Key) uint64 {
	return maphash.String(b.seed, k.Name) ^ bits.RotateLeft64(maphash.String(b.seed, k.Scope.Value()), 32)
}
