package inventory

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Index is what the stores held when a node at peace last looked: the first look of a drain, begun before its notice. To
// read it costs a drain a tenth of what looking at each file does (measured), and where the file system's
// own tables are not in memory it spares seconds in which nobody knows what is worth most.
//
// A directory whose names are as they were is not read again. Of any other the names are read when the drain begins, and a
// file that is new, or another one under its name, is looked at. That a file was written to in place is noticed when it is
// read to be sent, as any change is that comes while a file waits, or by the next look, which is for all that changed since
// the index was begun. So a drain with an index carries what one without does.
//
// It is for stores of plain files. It lives on disk as long as its process, and in some buffers.
type Index struct {
	cfg   IndexConfig
	made  time.Time // the start of its clock
	parts []*indexedPart
}

// IndexConfig is what an Index needs.
type IndexConfig struct {
	Dir    string // of its own: what is in it is removed
	Stores []*Store
	Disks  diskio.Disks // nil: all are well
	Leaves func() bool  // the node is under notice: a drain has what there is, and nothing must be in its way
	Log    *slog.Logger
}

type indexedPart struct {
	store *Store
	part  int
	n     int
	busy  atomic.Bool // a look that hangs has not come back

	mu         sync.Mutex
	now        *partIndex // nil: there is none
	generation int
	troubled   bool // the last look could not be kept
}

// mostAge is the age at which an index is made anew even if it still stands: each file that was written to in place since
// then costs a drain a second try.
const mostAge = 24 * time.Hour

// NewIndex prepares an index. It starts nothing.
func NewIndex(cfg IndexConfig) *Index {
	cfg.Disks = diskio.OrWell(cfg.Disks)
	ix := &Index{cfg: cfg, made: time.Now()}
	for _, s := range cfg.Stores {
		if _, plain := s.Shape.(FilesLayout); !plain {
			continue // a Spark block is files of several directories, and what is in them
		}
		for part := range s.Shape.Parts(s) {
			ix.parts = append(ix.parts, &indexedPart{store: s, part: part, n: len(ix.parts)})
		}
	}
	return ix
}

// Run keeps the index true while the node is at peace, until ctx ends. Without a place for its files there is none.
func (ix *Index) Run(ctx context.Context) error {
	if len(ix.parts) == 0 {
		return nil
	}
	if !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return nil // it is said enough what a disk means that does not answer
	}
	defer ix.drop()
	if err := errors.Join(os.RemoveAll(ix.cfg.Dir), os.MkdirAll(ix.cfg.Dir, 0o700)); err != nil {
		ix.cfg.Log.Warn("no index of the stores is kept: a drain looks through all of them first", "err", err)
		return nil
	}
	diskio.AtLeisure(ctx, ix.Look)
	return nil
}

// drop removes, as the process ends, what is of no use to the next one.
func (ix *Index) drop() {
	if !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return // nobody waits for a disk that hangs: the next start removes it
	}
	for _, p := range ix.parts {
		p.set(nil)
	}
	_ = os.RemoveAll(ix.cfg.Dir) // the next start does
}

// Look brings all parts up to date, one after the other, and returns for how long it worked.
func (ix *Index) Look(ctx context.Context) (worked time.Duration) {
	for _, p := range ix.parts {
		if ctx.Err() != nil || ix.leaves() {
			break
		}
		worked += ix.lookAt(ctx, p)
	}
	return worked
}

func (ix *Index) leaves() bool { return ix.cfg.Leaves != nil && ix.cfg.Leaves() }

// lookAt brings one part up to date. A look that hangs is left behind with its disk, and there is no second one before it
// comes back.
func (ix *Index) lookAt(ctx context.Context, p *indexedPart) time.Duration {
	dirs := []string{p.store.Paths[p.part], ix.cfg.Dir}
	away := func() bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return !ix.cfg.Disks.Readable(dir) })
	}
	if away() || !p.busy.CompareAndSwap(false, true) {
		return 0
	}
	worked, hangs := diskio.InStints(ctx, away, ix.leaves, func(ctx context.Context, rest func() bool) {
		ix.renew(ctx, p, rest)
		p.busy.Store(false) // before anybody hears of it: the next look may follow at once
	})
	if hangs {
		ix.cfg.Log.Warn("a look through a store hangs: there is no index of it until its disk answers", "dir", dirs[0])
	}
	return worked
}

// renew makes an index of a part, unless the one that there is still stands.
func (ix *Index) renew(ctx context.Context, p *indexedPart, rest func() bool) {
	p.mu.Lock()
	was, name := p.now, indexName(ix.cfg.Dir, p.n, p.generation)
	p.mu.Unlock()
	if was != nil && time.Since(was.began) < mostAge && !ix.stepped(was) {
		now := time.Now()
		stands, err := was.stands(p.store, p.part, rest)
		if stands {
			p.mu.Lock()
			was.checked = now
			p.mu.Unlock()
			return
		}
		if err != nil && !errors.Is(err, errPutOff) {
			ix.cfg.Log.Warn("an index is made anew", "store", p.store.Name, "err", err)
		}
	}
	if ctx.Err() != nil {
		return
	}
	drift := ix.drift()
	made, err := p.store.look(ctx, p.part, name, rest)
	switch {
	case errors.Is(err, errPutOff):
		ix.cfg.Log.Debug("a look through a store is put off", "store", p.store.Name)
		return
	case err != nil:
		p.trouble(ix.cfg.Log, err)
	default:
		ix.cfg.Log.Debug("indexed", "dir", p.store.Paths[p.part], "blocks", made.holds.Blocks, "bytes", made.holds.Bytes, "took", time.Since(made.began))
		if made.strange.files > 0 && (was == nil || was.strange != made.strange) {
			ix.cfg.Log.Warn("files whose names cannot be ids of blocks: a drain names them as lost, rename them", "dir", p.store.Paths[p.part], "files", made.strange.files, "one", made.strange.example)
		}
		made.drift = drift
		p.set(made)
	}
}

// trouble says once why there is no new index. The one that there is becomes less useful with time, and no less true.
func (p *indexedPart) trouble(log *slog.Logger, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.troubled {
		log.Warn("a part of a store cannot be indexed: a drain looks through it first", "dir", p.store.Paths[p.part], "err", err)
	}
	p.troubled = true
}

// drift is how far the machine's clock was set since the index was.
func (ix *Index) drift() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(ix.made.Round(0)) - now.Sub(ix.made) // Round(0) takes the monotonic reading off
}

// stepped reports whether the clock was set since an index was begun: then the times of files do not tell what is newer.
func (ix *Index) stepped(p *partIndex) bool { return (ix.drift() - p.drift).Abs() > ClockGrain/2 }

// set replaces an index.
func (p *indexedPart) set(made *partIndex) {
	p.mu.Lock()
	was := p.now
	p.now, p.generation, p.troubled = made, p.generation+1, false
	p.mu.Unlock()
	if was != nil {
		was.remove()
	}
}

func (p *indexedPart) get() *partIndex {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// IndexState says what an index has.
type IndexState struct {
	Holds   Count
	Largest int64     // bytes of a block
	AsOf    time.Time // when the part was last found true that was so longest ago; the zero time: there is no index
}

// State returns it. A nil index has nothing.
func (ix *Index) State() (st IndexState) {
	if ix == nil {
		return st
	}
	for _, p := range ix.parts {
		p.mu.Lock()
		if now := p.now; now != nil {
			st.Holds, st.Largest = st.Holds.Plus(now.holds), max(st.Largest, now.largest)
			if st.AsOf.IsZero() || now.checked.Before(st.AsOf) {
				st.AsOf = now.checked
			}
		}
		p.mu.Unlock()
	}
	return st
}

// Open returns the index of a part, read through and found whole, if there is one that can be trusted. A nil index has none.
func (ix *Index) Open(ctx context.Context, s *Store, part int) *IndexScan {
	if ix == nil {
		return nil
	}
	i := slices.IndexFunc(ix.parts, func(p *indexedPart) bool { return p.store == s && p.part == part })
	if i < 0 || !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return nil
	}
	opened := make(chan *IndexScan)
	ctx, cancel := context.WithTimeout(ctx, diskio.Overdue) // the disk that it lies on may hang, and not be the store's
	defer cancel()
	go func() {
		x, err := ix.reopen(ix.parts[i])
		if err != nil {
			ix.cfg.Log.Warn("an index cannot be used: the store is looked through", "dir", s.Paths[part], "err", err)
		}
		select {
		case opened <- x:
		case <-ctx.Done():
			x.Close()
		}
	}()
	select {
	case x := <-opened:
		return x
	case <-ctx.Done():
		return nil
	}
}

// reopen returns nil if there is none. One that cannot be used is forgotten, unless there is another by now.
func (ix *Index) reopen(p *indexedPart) (_ *IndexScan, err error) {
	now := p.get()
	if now == nil {
		return nil, nil
	}
	defer func() {
		if err != nil && p.get() == now {
			p.set(nil)
		}
	}()
	if ix.stepped(now) {
		return nil, errors.New("the clock was set since it was made")
	}
	dirs, err := now.dirs.open()
	if err != nil {
		return nil, err
	}
	blocks, err := now.blocks.open()
	if err != nil {
		dirs.close()
		return nil, err
	}
	return &IndexScan{store: p.store, part: p.part, Began: now.began, dirs: dirs, blocks: blocks, log: ix.cfg.Log}, nil
}
