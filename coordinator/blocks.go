package coordinator

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
	"unique"
)

// maxHeldBlocks is how many landed blocks one node may report: some fifty bytes and a name each, more would fill the memory
// of a small coordinator with one node's words.
const maxHeldBlocks = 4 << 20

// maxHeldNames is how long their names may be in all: 128 bytes each, where one may have 4096.
const maxHeldNames = maxHeldBlocks * 128

// blocks is where landed blocks rest. The holders report it and report it anew to a new process; nothing of it is
// written down. What a node holds stands in the rows of its shelf, and one index of hashes over all rows answers where a
// block is. Neither has pointers in it: a fleet's millions of blocks cost the garbage collector next to nothing.
type blocks struct {
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

// blockKey is an id in two parts: thousands of blocks share the first.
type blockKey struct {
	scope unique.Handle[string] // STORE/SCOPE
	name  string
}

func (k blockKey) id() string { return k.scope.Value() + "/" + k.name }

type landed struct {
	bytes int64
	from  unique.Handle[string]
}

// word is one thing that a node says of a block.
type word struct {
	key  blockKey
	what landed
	gone bool
	over bool   // it is gone with its app, as it should
	why  string // it is gone, for whoever asks for it
}

func newBlocks() *blocks {
	b := &blocks{seed: maphash.MakeSeed()}
	b.clear()
	return b
}

// clear forgets all, as a new process would.
func (b *blocks) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.shelves, b.numbers = map[uint32]place{}, []*shelf{nil}, map[string]uint32{}
	b.full, b.count, b.lapsed, b.ends, b.resumed = map[string]string{}, 0, lapsed{}, map[string]uint32{}, 0
}

func keyOf(id string) blockKey {
	near := unique.Make("")
	return keyNear(id, &near)
}

// keyNear is keyOf for one id after the other: most have the scope of the one before.
func keyNear(id string, near *unique.Handle[string]) blockKey {
	store := strings.IndexByte(id, '/')
	scope := store + 1 + strings.IndexByte(id[store+1:], '/')
	if id[:scope] != near.Value() {
		*near = unique.Make(id[:scope])
	}
	return blockKey{*near, id[scope+1:]}
}

// checkID says why id is no STORE/SCOPE/NAME.
func checkID(id string) error {
	if len(id) > maxID {
		return fmt.Errorf("block id of %d bytes: at most %d", len(id), maxID)
	}
	store, rest, _ := strings.Cut(id, "/")
	scope, name, _ := strings.Cut(rest, "/")
	if store == "" || scope == "" || name == "" {
		return fmt.Errorf("block id %q: must be STORE/SCOPE/NAME, with - for a scope that there is not", id)
	}
	if !plain(id) && (!utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl)) { // as agents take it: not all files have names that print
		return fmt.Errorf("block id %q: must be UTF-8 without control characters", id)
	}
	return nil
}

// hear takes a node's words in their order, and counts what it now has and had not before.
func (b *blocks) hear(node string, words []word) (news arrivals, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var from unique.Handle[string]
	var some arrival // from there
	told := func() {
		if some.blocks > 0 {
			news.add(from.Value(), some)
		}
	}
	defer told()
	s := b.shelves[b.numbers[node]]
	for _, w := range words {
		if w.gone {
			held := b.count
			if was, _ := b.drop(s, w.key, w.why); b.count < held && !w.over {
				b.ended(was)
			}
			continue
		}
		if s == nil {
			s = b.newShelf(node)
		}
		isNew, err := b.put(s, w.key, w.what)
		if err != nil {
			return news, err
		}
		if !isNew {
			continue
		}
		if w.what.from != from {
			told()
			from, some = w.what.from, arrival{}
		}
		some = arrival{some.blocks + 1, some.bytes + w.what.bytes}
	}
	return news, nil
}

// replace forgets what node, the machine of that id, was said to hold and takes what full heard of it instead, which is of no use
// afterwards. The first words of all tell what there is, and no news of it; later ones count as hear does.
func (b *blocks) replace(node, machine string, full *blocks) (news arrivals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := full.shelves[full.numbers[node]]
	if _, told := b.full[node]; told {
		had := b.shelves[b.numbers[node]]
		for n, k := range said.all() {
			if _, known := b.find(had, b.hash(k), k); !known {
				what := said.what(n)
				news.count(what.from.Value(), what.bytes)
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

// appendHolders appends who was said to hold the block with so many bytes, in no order: what has another size is another version.
func (b *blocks) appendHolders(to []string, k blockKey, bytes int64) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for at := range b.rowsOf(b.at[b.hash(k)], k) {
		if s := b.shelves[at.shelf]; s.what(at.row).bytes == bytes {
			to = append(to, s.node)
		}
	}
	return to
}

// cameFrom is the node that carried a block to another, "" if that is not said to hold it.
func (b *blocks) cameFrom(k blockKey, holder string) string {
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
	return s.what(at.row).from.Value()
}

// reported says whether node has said all that landed there since this process started, as the machine of that id, and whether it said
// so as another: what is known of that is forgotten in a moment.
func (b *blocks) reported(node, machine string) (told, another bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	said, told := b.full[node]
	return told && said == machine, told && said != machine
}

// forget drops all that node was said to hold.
func (b *blocks) forget(node string) {
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
func (b *blocks) takeDown(number uint32, why string, there bool) {
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
func (b *blocks) ended(was landed) { b.endedOf(was.from.Value()) }

func (b *blocks) endedOf(from string) {
	if _, known := b.ends[from]; known || len(b.ends) < mostEnds {
		b.ends[from]++
	}
}

// endsAt notes that of a block that came from a node, which has broken, and that it may not be asked for by name.
func (b *blocks) endsAt(from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endedOf(from)
}

// endsOf is how often it was told of what came from a node that nobody holds it any more, or may have been.
func (b *blocks) endsOf(node string) uint32 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ends[node] + b.resumed
}

// resume notes that the end of an app was taken back.
func (b *blocks) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumed++
}

// holders names who was said to hold the block, and says of how many bytes and from whom.
func (b *blocks) holders(k blockKey) (nodes []string, what landed) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for at := range b.rowsOf(b.at[b.hash(k)], k) {
		s := b.shelves[at.shelf]
		nodes, what = append(nodes, s.node), s.what(at.row)
	}
	slices.Sort(nodes)
	return nodes, what
}

// drops forgets that a node holds a block, which is broken there, and returns what it was said to be.
func (b *blocks) drops(node string, k blockKey) (bytes int64, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, had := b.drop(b.shelves[b.numbers[node]], k, "it was broken at "+node); had {
		bytes, from = was.bytes, was.from.Value()
	}
	return bytes, from
}

// endOf says of a block that was held why it is not any more, and from which node it came.
func (b *blocks) endOf(k blockKey) (from, why string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lapsed.at(b.longHash(k))
}

// of lists the blocks of one node, by id.
func (b *blocks) of(node string) []blockKey {
	b.mu.RLock()
	var keys []blockKey
	if s := b.shelves[b.numbers[node]]; s != nil {
		keys = make([]blockKey, 0, s.count) // of millions, growing would take as much again, and more
		for _, k := range s.all() {
			keys = append(keys, k)
		}
	}
	b.mu.RUnlock()
	slices.SortFunc(keys, func(x, y blockKey) int {
		if x.scope != y.scope {
			return strings.Compare(x.scope.Value(), y.scope.Value())
		}
		return strings.Compare(x.name, y.name)
	})
	return keys
}

// heldBy is how many blocks a node was said to hold.
func (b *blocks) heldBy(node string) int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s := b.shelves[b.numbers[node]]; s != nil {
		return s.count
	}
	return 0
}

// nodes lists everybody who was said to hold anything.
func (b *blocks) nodes() (names []string) {
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

func (b *blocks) located() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.count
}
