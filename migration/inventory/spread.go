package inventory

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// walkers is how many directories are looked through at once. A drain's second look finds next to nothing, but everything
// waits for it: the blocks have left, and nothing else is to be done.
const walkers = 4

// spread looks through a store's directory and all below it with several walks at a time. It returns false when one of them
// was told to stop or ctx has ended.
func spread(ctx context.Context, newWalk func() *walk) (more bool) {
	var others errgroup.Group
	others.SetLimit(walkers - 1)
	var over atomic.Bool
	walks := sync.Pool{New: func() any { return newWalk() }}
	var below func(w *walk, dir string, moved bool)
	below = func(w *walk, dir string, moved bool) {
		dirs, ok := w.one(ctx, dir, moved)
		moved = w.anew
		if !ok {
			over.Store(true)
		}
		for _, d := range dirs {
			if over.Load() {
				return
			}
			another := func() error {
				w := walks.Get().(*walk)
				below(w, d, moved)
				walks.Put(w)
				return nil
			}
			if !others.TryGo(another) {
				below(w, d, moved)
			}
		}
	}
	below(newWalk(), ".", false)
	_ = others.Wait() // none of them returns an error
	return !over.Load()
}

// oneByOne lets several goroutines call yield, one at a time, and not again once it has returned false.
func oneByOne(yield func(Item, error) bool) func(Item, error) bool {
	var mu sync.Mutex
	over := false
	return func(it Item, err error) bool {
		mu.Lock()
		defer mu.Unlock()
		over = over || !yield(it, err)
		return !over
	}
}
