package manifest

import "hash/maphash"

// MetIDs remembers ids by a bit for each: it may take one for another, and never forgets one.
type MetIDs struct {
	seed maphash.Seed
	bits []uint64
}

// NewMetIDs makes MetIDs of so many bits. With some 32 bits for each id, one in thirty is taken for another.
func NewMetIDs(bits int64) *MetIDs { return &MetIDs{maphash.MakeSeed(), make([]uint64, bits/64+1)} }

// Add reports whether the id seems to have been added before.
func (m *MetIDs) Add(id string) bool {
	word, bit := m.at(id)
	had := *word&bit != 0
	*word |= bit
	return had
}

// Has reports whether the id seems to have been added.
func (m *MetIDs) Has(id string) bool {
	word, bit := m.at(id)
	return *word&bit != 0
}

func (m *MetIDs) at(id string) (word *uint64, bit uint64) {
	h := maphash.String(m.seed, id)
	return &m.bits[(h>>6)%uint64(len(m.bits))], 1 << (h % 64)
}
