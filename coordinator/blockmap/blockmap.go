package blockmap

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unique"
)

// maxHeldBlocks is how many landed blocks one node may report: some fifty bytes and a name each, more would fill the memory
// of a small coordinator with one node's words.
const maxHeldBlocks = 4 << 20

// maxHeldNames is how long their names may be in all: 128 bytes each, where one may have 4096.
const maxHeldNames = maxHeldBlocks * 128

// Map is where landed blocks rest. The holders report it and report it anew to a new process; nothing of it is
// written down. What a node holds stands in the rows of its shelf, and one index of hashes over all rows answers where a
// block is. Neither has pointers in it: a fleet's millions of blocks cost the garbage collector next to nothing.
type Map struct {
	seed maphash.Seed

	mu      sync.RWMutex // guards all below
	at      map[uint32]place
	shelves []*shelf          // by number; nil: free. The first stays so, that no place be the zero one
	numbers map[string]uint32 // of the shelves, by node
	count   int
	full    map[string]string // by nodes that have said all that landed there: the ids of the machines that they were
	lapsed  lapsed
	ends    map[string]uint32 // by the nodes that they came from: how often holders that are there told of what nobody holds any more
	resumed uint32            // how often the end of an app was taken back, of which anything may have been removed
}

// Key is an id in two parts: thousands of blocks share the first.
type Key struct {
	Scope unique.Handle[string] // STORE/SCOPE
	Name  string
}

// ID is the whole of it.
func (k Key) ID() string { return k.Scope.Value() + "/" + k.Name }

// Landed is what a holder says of a block that it has.
type Landed struct {
	Bytes int64
	From  unique.Handle[string]
}

// Word is one thing that a node says of a block.
type Word struct {
	Key  Key
	What Landed
	Gone bool
	Over bool   // it is gone with its app, as it should
	Why  string // it is gone, for whoever asks for it
}

// New knows of nothing.
func New() *Map {
	b := &Map{seed: maphash.MakeSeed()}
	b.Clear()
	return b
}

// Clear forgets all, as a new process would.
func (b *Map) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.shelves, b.numbers = map[uint32]place{}, []*shelf{nil}, map[string]uint32{}
	b.full, b.count, b.lapsed, b.ends, b.resumed = map[string]string{}, 0, lapsed{}, map[string]uint32{}, 0
}

// KeyOf takes an id apart, which is STORE/SCOPE/NAME.
func KeyOf(id string) Key {
	near := unique.Make("")
	return KeyNear(id, &near)
}

// KeyNear is KeyOf for one id after the other: most have the scope of the one before.
func KeyNear(id string, near *unique.Handle[string]) Key {
	store := strings.IndexByte(id, '/')
	scope := store + 1 + strings.IndexByte(id[store+1:], '/')
	if id[:scope] != near.Value() {
		*near = unique.Make(id[:scope])
	}
	return Key{*near, id[scope+1:]}
}

// Hear takes a node's words in their order, and counts what it now has and had not before.
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

// Replace forgets what node, the machine of that id, was said to hold and takes what full heard of it instead, which is of no use
// afterwards. The first words of all tell what there is, and no news of it; later ones count as hear does.
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
		b.putUp(said) // first: what stays does not lapse
	}
	if known {
		b.takeDown(had, node+" has it no more", true)
	}
	b.full[node] = machine
	return news
}

// AppendHolders appends who was said to hold the block with so many bytes, in no order: what has another size is another version.
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

// CameFrom is the node that carried a block to another, "" if that is not said to hold it.
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

// Reported says whether node has said all that landed there since this process started, as the machine of that id, and whether it said
// so as another: what is known of that is forgotten in a moment.
func (b *Map) Reported(node, machine string) (told, another bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	said, told := b.full[node]
	return told && said == machine, told && said != machine
}

// Forget drops all that node was said to hold.
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

// takeDown forgets a shelf. there: its node is there, and has told of that.
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

// mostEnds bounds the nodes that are told: a holder may name as many as it likes.
const mostEnds = 64 << 10

// ended notes that nobody holds any more what came from a node.
func (b *Map) ended(was Landed) { b.endedOf(was.From.Value()) }

func (b *Map) endedOf(from string) {
	if _, known := b.ends[from]; known || len(b.ends) < mostEnds {
		b.ends[from]++
	}
}

// EndsAt notes that of a block that came from a node, which has broken, and that it may not be asked for by name.
func (b *Map) EndsAt(from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endedOf(from)
}

// EndsOf is how often it was told of what came from a node that nobody holds it any more, or may have been.
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

// Holders names who was said to hold the block, and says of how many bytes and from whom.
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

// Drops forgets that a node holds a block, which is broken there, and returns what it was said to be.
func (b *Map) Drops(node string, k Key) (bytes int64, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, had := b.drop(b.shelves[b.numbers[node]], k, "it was broken at "+node); had {
		bytes, from = was.Bytes, was.From.Value()
	}
	return bytes, from
}

// EndOf says of a block that was held why it is not any more, and from which node it came.
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
		keys = make([]Key, 0, s.count) // of millions, growing would take as much again, and more
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

// HeldBy is how many blocks a node was said to hold.
func (b *Map) HeldBy(node string) int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s := b.shelves[b.numbers[node]]; s != nil {
		return s.count
	}
	return 0
}

// Nodes lists everybody who was said to hold anything.
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

// Located is how many blocks are held by anybody, each once.
func (b *Map) Located() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.count
}
