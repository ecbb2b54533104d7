package coordinator

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"
)

// maxHeldBlocks is how many landed blocks one node may report: a few hundred bytes each would fill the memory of a small
// coordinator with one node's words.
const maxHeldBlocks = 4 << 20

// blocks is where landed blocks rest. The holders report it and report it anew to a new process; nothing of it is
// written down. Each holder's blocks are kept under their names, and one index of hashes over all of them answers where
// a block is.
type blocks struct {
	seed maphash.Seed

	mu     sync.RWMutex // guards all below
	held   map[string]map[blockKey]landed
	first  map[uint64]unique.Handle[string]   // hash of the id: a holder
	others map[uint64][]unique.Handle[string] // and the rest of them, where there are more
	count  int
	full   map[string]bool // nodes that have said all that landed there
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
	b.held = map[string]map[blockKey]landed{}
	b.first = map[uint64]unique.Handle[string]{}
	b.others = map[uint64][]unique.Handle[string]{}
	b.full, b.count = map[string]bool{}, 0
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
	return blockKey{*near, strings.Clone(id[scope+1:])}
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
	if !printable(id) {
		return fmt.Errorf("block id %q: must be printable UTF-8", id)
	}
	return nil
}

// hear takes a node's words in their order, and counts what it now has and had not before.
func (b *blocks) hear(node string, words []word) (news arrivals, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := unique.Make(node)
	for _, w := range words {
		if w.gone {
			b.drop(node, w.key)
			continue
		}
		isNew, err := b.put(n, w.key, w.what)
		if err != nil {
			return news, err
		}
		if isNew {
			news.count(w.what.from.Value(), w.what.bytes)
		}
	}
	return news, nil
}

// replace forgets what node was said to hold and takes words instead. The first words of all tell what there is, and no
// news of it; later ones count as hear does.
func (b *blocks) replace(node string, words map[blockKey]landed) (news arrivals, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	had, again := b.held[node], b.full[node]
	for k, l := range words {
		if _, ok := had[k]; again && !ok {
			news.count(l.from.Value(), l.bytes)
		}
	}
	b.forgetLocked(node)
	b.full[node] = true
	n := unique.Make(node)
	for k, l := range words {
		if _, err := b.put(n, k, l); err != nil {
			return news, err
		}
	}
	return news, nil
}

// reported says whether node has said all that landed there since this process started.
func (b *blocks) reported(node string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.full[node]
}

// forget drops all that node was said to hold.
func (b *blocks) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(node)
}

func (b *blocks) forgetLocked(node string) {
	for k := range b.held[node] {
		b.drop(node, k)
	}
	delete(b.held, node)
	delete(b.full, node)
}

// put notes a block, and says whether node was not said to hold it before.
func (b *blocks) put(node unique.Handle[string], k blockKey, l landed) (isNew bool, err error) {
	mine := b.held[node.Value()]
	if mine == nil {
		mine = map[blockKey]landed{}
		b.held[node.Value()] = mine
	}
	had := len(mine)
	if had >= maxHeldBlocks {
		if _, ok := mine[k]; !ok {
			return false, fmt.Errorf("node %s reports more than %d landed blocks: the rest is found by asking it", node.Value(), maxHeldBlocks)
		}
	}
	if mine[k] = l; len(mine) == had {
		return false, nil
	}
	h := b.hash(k)
	if f, ok := b.first[h]; !ok {
		b.first[h] = node
		b.count++
	} else if f != node && !slices.Contains(b.others[h], node) {
		b.others[h] = append(b.others[h], node)
	}
	return true, nil
}

func (b *blocks) drop(node string, k blockKey) {
	if _, ok := b.held[node][k]; !ok {
		return
	}
	delete(b.held[node], k)
	h, n := b.hash(k), unique.Make(node)
	more := b.others[h]
	if b.first[h] != n {
		more = slices.DeleteFunc(more, func(o unique.Handle[string]) bool { return o == n })
	} else if len(more) > 0 {
		b.first[h], more = more[0], more[1:]
	} else {
		delete(b.first, h)
		b.count--
	}
	if len(more) > 0 {
		b.others[h] = more
	} else {
		delete(b.others, h)
	}
}

func (b *blocks) hash(k blockKey) uint64 { return maphash.Comparable(b.seed, k) }

// holders names who was said to hold the block, and says of how many bytes and from whom.
func (b *blocks) holders(k blockKey) (nodes []string, what landed) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	h := b.hash(k)
	f, ok := b.first[h]
	if !ok {
		return nil, landed{}
	}
	for _, n := range append([]unique.Handle[string]{f}, b.others[h]...) {
		if l, ok := b.held[n.Value()][k]; ok { // two ids may share a hash
			nodes, what = append(nodes, n.Value()), l
		}
	}
	slices.Sort(nodes)
	return nodes, what
}

// of lists the blocks of one node, by id.
func (b *blocks) of(node string) []blockKey {
	b.mu.RLock()
	keys := slices.Collect(maps.Keys(b.held[node]))
	b.mu.RUnlock()
	slices.SortFunc(keys, func(x, y blockKey) int {
		if x.scope != y.scope {
			return strings.Compare(x.scope.Value(), y.scope.Value())
		}
		return strings.Compare(x.name, y.name)
	})
	return keys
}

// nodes lists everybody who was said to hold anything.
func (b *blocks) nodes() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(b.held))
}

func (b *blocks) located() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.count
}

// gather adds words to a full report on its way in.
func gather(full map[blockKey]landed, words []word) error {
	for _, w := range words {
		if w.gone {
			delete(full, w.key)
			continue
		}
		full[w.key] = w.what
	}
	if len(full) > maxHeldBlocks {
		return fmt.Errorf("more than %d landed blocks in one report: the rest is found by asking the node", maxHeldBlocks)
	}
	return nil
}
