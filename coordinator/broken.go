package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// evBroken says that blocks have broken at a holder. It is a soft event: each leader tells of what holders reported to it.
const evBroken = "BlocksBroken"

// What becomes of a broken block, in the words of the event. Its sources are the node that sent it and the node that it was born on.
const (
	thenHeld  = "held"  // another node holds it
	thenAgain = "again" // a source is leaving, and is asked to send it again
	thenThere = "there" // a source stays, and has the block itself
	thenLost  = "lost"  // no source answers any more
)

const (
	// againTold is how many blocks one reply to a heartbeat asks a node to send again.
	againTold = 64

	// maxBroken bounds the broken blocks that are remembered. No source is asked for further ones by id.
	maxBroken = 64 << 10
)

// broken remembers the blocks that broke at their last holder, to ask their sources for them. Like the map of holders, it is in the memory of
// one leader.
type broken struct {
	mu      sync.Mutex // guards all below
	known   map[blockmap.Key]brokenAt
	of      map[string][]blockmap.Key // by source, in the order in which they were reported
	orphans bool                      // some blocks may have no source that is still known
}

type brokenAt struct {
	from    string   // the node that sent it to the holder
	sources []string // from, and the node that it was born on; without those that named it as lost, and without forgotten and replaced nodes
	peer    string   // the holder
	bytes   int64
}

func newBroken() *broken {
	b := &broken{}
	b.clear()
	return b
}

// clear forgets all, for a new term as the leader.
func (b *broken) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.of, b.orphans = map[blockmap.Key]brokenAt{}, map[string][]blockmap.Key{}, false
}

// add remembers a block, and reports whether there was room for it.
func (b *broken) add(k blockmap.Key, at brokenAt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, known := b.known[k]
	if !known && len(b.known) >= maxBroken {
		if !b.orphans {
			return false
		}
		b.orphans = false // orphans make room: no source can be asked for them
		maps.DeleteFunc(b.known, func(_ blockmap.Key, at brokenAt) bool { return len(at.sources) == 0 })
	}
	b.known[k] = at
	b.orphans = b.orphans || len(at.sources) == 0
	for _, source := range at.sources {
		if !slices.Contains(was.sources, source) {
			b.of[source] = append(b.of[source], k)
		}
	}
	for _, source := range was.sources {
		if !slices.Contains(at.sources, source) {
			b.drop(source, k)
		}
	}
	return true
}

// drop takes a block off the list that a source is asked for. The lock is held.
func (b *broken) drop(source string, k blockmap.Key) {
	b.of[source] = slices.DeleteFunc(b.of[source], func(other blockmap.Key) bool { return other == k })
	if len(b.of[source]) == 0 {
		delete(b.of, source)
	}
}

// settle takes blocks that a source has named as lost off the list that it is asked for. A block without another source is forgotten.
func (b *broken) settle(source string, ids ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.of[source]) == 0 {
		return
	}
	settled := map[blockmap.Key]bool{} // collected first, so that the source's long list is walked once and not for each block
	for _, id := range ids {
		k := blockmap.KeyOf(id)
		at := b.known[k]
		if !slices.Contains(at.sources, source) {
			continue
		}
		settled[k] = true
		if at.sources = without(at.sources, source); len(at.sources) > 0 {
			b.known[k] = at
		} else {
			delete(b.known, k)
		}
	}
	if b.of[source] = slices.DeleteFunc(b.of[source], func(k blockmap.Key) bool { return settled[k] }); len(b.of[source]) == 0 {
		delete(b.of, source)
	}
}

// leaves removes a source that was forgotten, or whose name another machine has now: it is asked for nothing any more.
func (b *broken) leaves(source string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.of[source] {
		if at := b.known[k]; slices.Contains(at.sources, source) {
			at.sources = without(at.sources, source)
			b.known[k] = at
			b.orphans = b.orphans || len(at.sources) == 0
		}
	}
	delete(b.of, source)
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == one })
}

// askFor returns the first againTold blocks of a source that no node holds, and forgets the blocks before them that some node holds again.
func (b *broken) askFor(source string, held func(blockmap.Key, []string) bool) (blocks []*api.BrokenBlock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.of[source]
	if len(keys) == 0 {
		return nil
	}
	keys = slices.DeleteFunc(keys, func(k blockmap.Key) bool {
		at := b.known[k]
		switch {
		case !slices.Contains(at.sources, source):
			return true
		case len(blocks) == againTold:
			return false
		case held(k, at.sources):
			delete(b.known, k)
			return true
		}
		blocks = append(blocks, &api.BrokenBlock{Id: k.ID(), Peer: at.peer, Heir: at.from != source})
		return false
	})
	if b.of[source] = keys; len(keys) == 0 {
		delete(b.of, source)
	}
	return blocks
}

// count is how many blocks a source is to be asked for.
func (b *broken) count(source string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of[source])
}

func (b *broken) at(k blockmap.Key) (at brokenAt, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known = b.known[k]
	return at, known
}

// all returns what is remembered now.
func (b *broken) all() map[blockmap.Key]brokenAt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.known)
}

// others are the holders of a block that can be counted on. A holder that is also a source does not count if it leaves: it keeps the
// blocks that it took in, and they go with its machine. Any other holder must be vouched for: a DECOMMISSIONED node has handed on
// what it could.
func (l *locations) others(k blockmap.Key, sources []string) []*api.Holder {
	said, _ := l.blocks.Holders(k)
	leaves := func(node string) bool {
		if !slices.Contains(sources, node) {
			return !l.vouches(node)
		}
		then, _ := l.fate([]string{node})
		return then == thenAgain
	}
	if slices.ContainsFunc(said, leaves) {
		said = slices.DeleteFunc(slices.Clone(said), leaves)
	}
	return l.reachable(said)
}

// breaks takes a holder's report of blocks that broke there, works out what becomes of each, and tells it in the log and in events.
func (l *locations) breaks(holder string, words []*api.HeldBlock) {
	type fate struct{ from, then, by string }
	type sum struct {
		fate
		blockmap.Arrival
		first string
	}
	var told []*sum
	for _, w := range words {
		k := blockmap.KeyOf(w.Id)
		bytes, from := l.blocks.Drops(holder, k)
		at := fate{from: cmp.Or(w.From, from)}
		was := brokenAt{from: at.from, peer: holder, bytes: cmp.Or(w.Bytes, bytes)}
		for _, source := range slices.Compact([]string{at.from, cmp.Or(w.Origin, at.from)}) {
			if _, known := l.ledger.node(source); known { // a forgotten node can be asked for nothing
				was.sources = append(was.sources, source)
			}
		}
		if others := l.others(k, was.sources); len(others) > 0 {
			at.then, at.by = thenHeld, others[0].Node
		} else {
			then, by := l.fate(was.sources)
			at.then, at.from = then, cmp.Or(by, at.from)
			kept := l.broken.add(k, was)
			for _, source := range was.sources { // a reply may never ask for it by id: the count has the source check all that its ledger has
				if !kept || l.broken.count(source) > againTold {
					l.blocks.EndsAt(source)
				}
			}
		}
		if len(told) >= blockmap.MaxSources { // an honest node has few
			at = fate{then: at.then}
		}
		i := slices.IndexFunc(told, func(s *sum) bool { return s.fate == at })
		if i < 0 {
			i, told = len(told), append(told, &sum{fate: at, first: w.Id})
		}
		told[i].Arrival = blockmap.Arrival{Blocks: told[i].Blocks + 1, Bytes: told[i].Bytes + cmp.Or(w.Bytes, bytes)}
	}
	for _, s := range told {
		l.log.Warn("blocks are broken at a node that held them", "node", holder, "blocks", s.Blocks, "bytes", s.Bytes, "block", s.first, "from", s.from, "then", s.then, "peer", s.by)
		l.publisher.tell(evBroken, holder, registry.Saying("from", s.from, "blocks", strconv.FormatInt(s.Blocks, 10), "bytes", strconv.FormatInt(s.Bytes, 10),
			"block", s.first, "then", s.then, "peer", s.by))
	}
}

// fate is what becomes of a block that no node holds and that came from these sources, and the source by which. It passes over a machine
// that took over another's name and was never about to leave itself: not this machine sent the block, the other did.
func (l *locations) fate(sources []string) (then, by string) {
	then = thenLost
	if len(sources) > 0 {
		by = sources[0]
	}
	for _, source := range sources {
		n, known := l.ledger.node(source)
		switch {
		case !known || !l.leases.present(n.Name) || n.Namesake && !l.hasLeft(n):
		case l.leavesWith(n):
			return thenAgain, source
		case then == thenLost:
			then, by = thenThere, source
		}
	}
	return then, by
}

// leavesWith reports whether a node leaves, has left, or is under a notice that its agent heeds.
func (l *locations) leavesWith(n registry.Node) bool {
	return n.Leaving() || n.State == registry.Decommissioned || watched(l.leases.read(n.Name).status)
}

// hasLeft reports whether a node was ever about to leave.
func (l *locations) hasLeft(n registry.Node) bool {
	return n.Decommission != nil || watched(l.leases.read(n.Name).status)
}

// again are the broken blocks that a leaving node is asked to send again.
func (l *locations) again(n registry.Node) []*api.BrokenBlock {
	if !l.leavesWith(n) {
		return nil
	}
	return l.broken.askFor(n.Name, func(k blockmap.Key, sources []string) bool { return len(l.others(k, sources)) > 0 })
}

// brokenForGood reports whether a block broke at its last holder, and none of its sources is there any more.
func (l *locations) brokenForGood(id string) bool {
	at, known := l.broken.at(blockmap.KeyOf(id))
	return known && l.isLost(at)
}

func (l *locations) isLost(at brokenAt) bool {
	then, _ := l.fate(at.sources)
	return then == thenLost
}
