package plan

import (
	"math"
	"path"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// What a block is worth when nobody has said it: about the time of a task, whatever the block's size. A lost shuffle output fails
// whole stages, where a lost cached block only slows them, so it weighs four times as much. An application's newest shuffle is about
// to be read; an older one is read only if something fails that came after it.
const (
	worthCached      = 5 * time.Second
	worthShuffle     = 4 * worthCached
	worthOldShuffle  = worthShuffle / 2
	worthPastShuffle = worthShuffle / 4
)

const (
	// ranks are half octaves of bytes per second of work: enough for a byte that saves a month and for a pebibyte that
	// saves a millisecond. Blocks of one rank differ in value by less than a half, which costs 1 % of what a perfect order
	// saves (measured in the simulator, with values that are log-normal with a sigma of 1.5).
	ranks = 192
	// firstRank is that of a byte that saves a second.
	firstRank = 48
)

// Said returns a func that says what a block is worth by what somebody said of it (told is Config.Told) or of the stores; 0: nobody did.
func Said(stores []*inventory.Store, told func(inventory.BlockID) time.Duration) func(inventory.Block) time.Duration {
	return newWorths(stores, told).said
}

// rank orders blocks by value per byte: a lower one leaves first.
func rank(bytes int64, value time.Duration) int {
	r := 2 * math.Log2((float64(bytes)+1)/value.Seconds())
	return min(max(int(math.Round(r))+firstRank, 0), ranks-1)
}

// worths says what blocks are worth. It learns which shuffle of an application is the newest from the blocks that it is asked
// about: a scan does not meet map outputs in the order in which they were written.
type worths struct {
	told   func(inventory.BlockID) time.Duration // what a program said; nil: none was asked
	hints  map[string]inventory.StoreConfig      // by name of the store
	newest map[string]int                        // shuffle, by store and scope
}

// maxScopes bounds what is remembered of applications: a node runs a few at a time.
const maxScopes = 4096

func newWorths(stores []*inventory.Store, told func(inventory.BlockID) time.Duration) *worths {
	w := &worths{told: told, hints: map[string]inventory.StoreConfig{}, newest: map[string]int{}}
	for _, s := range stores {
		w.hints[s.Name] = s.StoreConfig
	}
	return w
}

// said returns what a program said on the socket that a block is worth, else what its engine or the node that it came from said,
// else the first hint of its store that matches, else what the store's blocks are worth; 0: nobody said anything.
func (w *worths) said(b inventory.Block) time.Duration {
	if w.told != nil {
		if value := w.told(b.ID); value > 0 {
			return value
		}
	}
	if b.Value > 0 {
		return b.Value
	}
	cfg := w.hints[b.ID.Store()]
	for _, h := range cfg.Hints {
		if h.Matches(b.ID.Name()) {
			return h.Value
		}
	}
	return cfg.Value
}

// of returns what a block is worth by what was said of it, else by its kind.
func (w *worths) of(b inventory.Block) time.Duration {
	switch {
	case b.Value > 0:
		return b.Value
	case b.Kind != inventory.KindShuffle, b.Layout == inventory.LayoutSpark && strings.HasPrefix(b.ID.Name(), "rdd_"):
		return worthCached
	}
	return w.ofShuffle(b.ID)
}

func (w *worths) ofShuffle(id inventory.BlockID) time.Duration {
	shuffle, ok := shuffleNumber(id.Name())
	if !ok {
		return worthShuffle
	}
	app := id.Store() + "/" + id.Scope()
	newest, known := w.newest[app]
	if shuffle > newest || !known && len(w.newest) < maxScopes {
		w.newest[app], newest = shuffle, shuffle
	}
	switch newest - shuffle {
	case 0:
		return worthShuffle
	case 1:
		return worthOldShuffle
	}
	return worthPastShuffle
}

// shuffleNumber is the number in Spark's shuffle_SHUFFLE_MAP_REDUCE.
func shuffleNumber(name string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(path.Base(name), "shuffle_")
	digits, _, more := strings.Cut(rest, "_")
	if !ok || !more || len(digits) == 0 || len(digits) > 9 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}
