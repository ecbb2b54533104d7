package blockmap

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/lifeboat/lifeboat/api"
)

// maxHeldBlocks is how many landed blocks one node may report. At some fifty bytes and a name each, one node's reports would otherwise
// fill the memory of a small coordinator.
const maxHeldBlocks = 4 << 20

// maxHeldNames is how long their names may be in all: 128 bytes each, where one may have 4096.
const maxHeldNames = maxHeldBlocks * 128

// Map knows the holders of each landed block. The holders report their blocks, and report them again to a new process; nothing is
// written to a disk. Each node has a shelf with one row per block, and one index of hashes over all rows finds the holders of a
// block. Neither rows nor index have pointers: a fleet's millions of blocks cost the garbage collector next to nothing.
type Map struct {
	seed maphash.Seed

	mu      sync.RWMutex // guards all below
	at      map[uint32]place
	shelves []*shelf          // by number; nil: free. Number 0 is never used, so that no row has the zero place
	numbers map[string]uint32 // of the shelves, by node
	count   int
	apart   int               // of count, the accounts of drains
	full    map[string]string // for each node that has reported all its landed blocks: the id of the machine that it was then
	lapsed  lapsed
	ends    map[string]uint32 // by source: how many of its blocks lost their last holder, by the word of a holder that is still there
	resumed uint32            // how often the end of an app was taken back: any of its blocks may have been removed meanwhile
}

// Key is an id in two parts: thousands of blocks share the first.
type Key struct {
	Scope unique.Handle[string] // STORE/SCOPE
	Name  string
}

// ID is the block's whole id.
func (k Key) ID() string { return k.Scope.Value() + "/" + k.Name }

// Landed is what a holder reports of one block: its size and the node that sent it.
type Landed struct {
	Bytes int64
	From  unique.Handle[string]
}

// Word is one line of a node's report: that it holds a block, or holds it no more.
type Word struct {
	Key  Key
	What Landed
	Gone bool
	Over bool   // it was removed because its app is over, as it should be
	Why  string // why it is gone, in words for a reader that asks for it
}

// New returns an empty map.
func New() *Map {
	b := &Map{seed: maphash.MakeSeed()}
	b.Clear()
	return b
}

// Clear empties the map, as if the process were new.
func (b *Map) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.shelves, b.numbers = map[uint32]place{}, []*shelf{nil}, map[string]uint32{}
	b.full, b.count, b.apart, b.lapsed, b.ends, b.resumed = map[string]string{}, 0, 0, lapsed{}, map[string]uint32{}, 0
}

// KeyOf splits an id, which is STORE/SCOPE/NAME.
func KeyOf(id string) Key {
	near := unique.Make("")
	return KeyNear(id, &near)
}

// KeyNear is KeyOf for a run of ids: most have the scope of the id before, which near keeps.
func KeyNear(id string, near *unique.Handle[string]) Key {
	store := strings.IndexByte(id, '/')
	scope := store + 1 + strings.IndexByte(id[store+1:], '/')
	if id[:scope] != near.Value() {
		*near = unique.Make(id[:scope])
	}
	return Key{*near, id[scope+1:]}
}

// Hear applies a node's report in order, and counts by source the blocks that the node has now and had not before.
func (b *Map) Hear(node string, words []Word) (news Arrivals, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var from unique.Handle[string]
	var some Arrival // from there
	told := func() {
		if some.Blocks > 0 {
			news.Add(from.Value(), some)
		}
	}
	defer told()
	s := b.shelves[b.numbers[node]]
	for _, w := range words {
		if w.Gone {
			held := b.count
			if was, _ := b.drop(s, w.Key, w.Why); b.count < held && !w.Over {
				b.ended(was)
			}
			continue
		}
		if s == nil {
			s = b.newShelf(node)
		}
		isNew, err := b.put(s, w.Key, w.What)
		if err != nil {
			return news, err
		}
		if !isNew {
			continue
		}
		if w.What.From != from {
			told()
			from, some = w.What.From, Arrival{}
		}
		some = Arrival{some.Blocks + 1, some.Bytes + w.What.Bytes}
	}
	return news, nil
}

// Replace takes a full report: it forgets the blocks of node, the machine of that id, and puts in their place those that full heard of it.
// full is of no use afterwards. A node's first full report lists blocks that landed long ago, so it counts none as new; later ones
// count as Hear does.
func (b *Map) Replace(node, machine string, full *Map) (news Arrivals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := full.shelves[full.numbers[node]]
	if _, told := b.full[node]; told {
		had := b.shelves[b.numbers[node]]
		for n, k := range said.all() {
			if _, known := b.find(had, b.hash(k), k); !known {
				what := said.what(n)
				news.count(what.From.Value(), what.Bytes)
			}
		}
	}
	had, known := b.numbers[node]
	delete(b.numbers, node)
	if said != nil {
		b.putUp(said) // before the old shelf is taken down, or blocks that are on both would lapse
	}
	if known {
		b.takeDown(had, node+" has it no more", true)
	}
	b.full[node] = machine
	return news
}

// AppendHolders appends the holders of the block with so many bytes, in no order. A copy of another size is another version of the block.
func (b *Map) AppendHolders(to []string, k Key, bytes int64) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for at := range b.rowsOf(b.at[b.hash(k)], k) {
		if s := b.shelves[at.shelf]; s.what(at.row).Bytes == bytes {
			to = append(to, s.node)
		}
	}
	return to
}

// CameFrom is the node that sent a block to holder; "" if holder has not reported the block.
func (b *Map) CameFrom(k Key, holder string) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	number, known := b.numbers[holder]
	if !known {
		return ""
	}
	s := b.shelves[number]
	at, has := b.find(s, b.hash(k), k)
	if !has {
		return ""
	}
	return s.what(at.row).From.Value()
}

// Reported reports whether node, as the machine of that id, has told this process of all its landed blocks (told), or whether the report
// is of another machine that had the name before (another): the blocks of that one are about to be forgotten.
func (b *Map) Reported(node, machine string) (told, another bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	said, told := b.full[node]
	return told && said == machine, told && said != machine
}

// Forget drops all that node reported.
func (b *Map) Forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.full, node)
	delete(b.ends, node)
	if number, known := b.numbers[node]; known {
		delete(b.numbers, node)
		b.takeDown(number, node+", which had it, is gone", false)
	}
}

// takeDown forgets a shelf. there says that the node is still there and reported the change itself: then blocks that lose their last
// holder count as ended.
func (b *Map) takeDown(number uint32, why string, there bool) {
	s := b.shelves[number]
	for n, k := range s.all() {
		held := b.count
		if b.unlink(b.hash(k), place{number, n}, k, why); b.count < held && there {
			b.ended(s.what(n))
		}
	}
	b.shelves[number] = nil
}

// mostEnds bounds the sources in ends: a holder may name as many as it likes.
const mostEnds = 64 << 10

// ended notes for a block's source that the block has lost its last holder.
func (b *Map) ended(was Landed) { b.endedOf(was.From.Value()) }

func (b *Map) endedOf(from string) {
	if _, known := b.ends[from]; known || len(b.ends) < mostEnds {
		b.ends[from]++
	}
}

// EndsAt notes for a source that one of its blocks broke at the last holder. It is for broken blocks that the coordinator may never ask
// for by id: the count tells the source to check all that it sent.
func (b *Map) EndsAt(from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endedOf(from)
}

// EndsOf is how many blocks from node have lost their last holder, and how often the end of any app was taken back. A node that sees it
// rise asks which of its blocks are still held.
func (b *Map) EndsOf(node string) uint32 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ends[node] + b.resumed
}

// Resume notes that the end of an app was taken back.
func (b *Map) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumed++
}

// Holders names the nodes that reported the block, in order, and what one of them said of its size and source.
func (b *Map) Holders(k Key) (nodes []string, what Landed) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for at := range b.rowsOf(b.at[b.hash(k)], k) {
		s := b.shelves[at.shelf]
		nodes, what = append(nodes, s.node), s.what(at.row)
	}
	slices.Sort(nodes)
	return nodes, what
}

// Drops removes a node as holder of a block that broke there, and returns the size and the source that the node had reported.
func (b *Map) Drops(node string, k Key) (bytes int64, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, had := b.drop(b.shelves[b.numbers[node]], k, "it was broken at "+node); had {
		bytes, from = was.Bytes, was.From.Value()
	}
	return bytes, from
}

// EndOf says why a block that was held has no holder any more, and which node it came from.
func (b *Map) EndOf(k Key) (from, why string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lapsed.at(b.longHash(k))
}

// Of lists the blocks of one node, by id.
func (b *Map) Of(node string) []Key {
	b.mu.RLock()
	var keys []Key
	if s := b.shelves[b.numbers[node]]; s != nil {
		keys = make([]Key, 0, s.count) // growing a slice of millions would take as much memory again, and more
		for _, k := range s.all() {
			keys = append(keys, k)
		}
	}
	b.mu.RUnlock()
	slices.SortFunc(keys, func(x, y Key) int {
		if x.Scope != y.Scope {
			return strings.Compare(x.Scope.Value(), y.Scope.Value())
		}
		return strings.Compare(x.Name, y.Name)
	})
	return keys
}

// HeldBy is how many blocks a node has reported.
func (b *Map) HeldBy(node string) int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s := b.shelves[b.numbers[node]]; s != nil {
		return s.count
	}
	return 0
}

// Nodes lists the nodes that hold any block.
func (b *Map) Nodes() (names []string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.shelves {
		if s != nil && s.count > 0 {
			names = append(names, s.node)
		}
	}
	slices.Sort(names)
	return names
}

// accounts is the scope of the accounts of drains.
var accounts = unique.Make(api.AccountStore + "/-")

// tally counts a block that got its first holder (1) or lost its last (-1).
func (b *Map) tally(k Key, n int) {
	b.count += n
	if k.Scope == accounts {
		b.apart += n
	}
}

// Located is how many blocks have a holder, each counted once. The accounts of drains do not count: no list shows them, and who compares
// what nodes had with what is located would find one block too many for each drain.
func (b *Map) Located() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.count - b.apart
}
