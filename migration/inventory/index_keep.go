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

// Index is what the stores held when a node at peace last looked. It is a drain's first look, made before the notice. To
// read it costs a drain a tenth of looking at each file (measured). If the file system's own tables are not in memory,
// it saves seconds in which nobody knows which blocks are worth most.
//
// A drain does not read a directory again whose names are as they were. In any other it reads the names, and looks at each
// file that is new, or that is another one under its name. A file that was written to in place is noticed when it is read
// to be sent, like any change while a file waits, or by the next look, which is for all changes since the index was begun.
// So a drain with an index carries what one without does.
//
// It covers stores of plain files. It lies on disk for as long as its process lives, and takes some buffers of memory.
type Index struct {
	cfg   IndexConfig
	made  time.Time // when drift began to count
	parts []*indexedPart
}

// IndexConfig is what an Index needs.
type IndexConfig struct {
	Dir    string // its own directory: files in it are removed
	Stores []*Store
	Disks  diskio.Disks // nil: all are well
	Leaves func() bool  // the node is under notice: a drain has the index that there is, and nothing may be in its way
	Log    *slog.Logger
}

type indexedPart struct {
	store *Store
	part  int
	n     int
	busy  atomic.Bool // a look is under way, or hangs

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
			continue // a Spark block is several files, in several directories, and depends on their content
		}
		for part := range s.Shape.Parts(s) {
			ix.parts = append(ix.parts, &indexedPart{store: s, part: part, n: len(ix.parts)})
		}
	}
	return ix
}

// Run keeps the index up to date while the node is at peace, until ctx ends. Without a place for its files it keeps
// none.
func (ix *Index) Run(ctx context.Context) error {
	if len(ix.parts) == 0 {
		return nil
	}
	if !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return nil // the log has enough about a disk that does not answer
	}
	defer ix.drop()
	if err := errors.Join(os.RemoveAll(ix.cfg.Dir), os.MkdirAll(ix.cfg.Dir, 0o700)); err != nil {
		ix.cfg.Log.Warn("no index of the stores is kept: a drain looks through all of them first", "err", err)
		return nil
	}
	diskio.AtLeisure(ctx, ix.Look)
	return nil
}

// drop removes the files at the end of the process: they are of no use to the next.
func (ix *Index) drop() {
	if !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return // nobody waits for a disk that hangs: the next start removes it
	}
	for _, p := range ix.parts {
		p.set(nil)
	}
	_ = os.RemoveAll(ix.cfg.Dir) // else the next start does
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

// lookAt brings one part up to date. A look that hangs is left behind with its disk, and no second look begins before the
// first comes back.
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
		p.busy.Store(false) // before InStints returns: the next look may follow at once
	})
	if hangs {
		ix.cfg.Log.Warn("a look through a store hangs: there is no index of it until its disk answers", "dir", dirs[0])
	}
	return worked
}

// renew makes an index of a part, unless the present one still stands.
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

// trouble logs once why there is no new index. The old one gets less useful with time, but stays true.
func (p *indexedPart) trouble(log *slog.Logger, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.troubled {
		log.Warn("a part of a store cannot be indexed: a drain looks through it first", "dir", p.store.Paths[p.part], "err", err)
	}
	p.troubled = true
}

// drift returns by how much the machine's clock was set since the Index was made.
func (ix *Index) drift() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(ix.made.Round(0)) - now.Sub(ix.made) // Round(0) takes the monotonic reading off
}

// stepped reports whether the clock was set since an index was begun: then the times of files do not tell which is
// newer.
func (ix *Index) stepped(p *partIndex) bool { return (ix.drift() - p.drift).Abs() > ClockGrain/2 }

// set replaces the part's index, and removes the files of the old one.
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

// IndexState is what an index holds.
type IndexState struct {
	Holds   Count
	Largest int64     // bytes of the largest block
	AsOf    time.Time // when each part had been found true, of that part for which it is longest ago; zero: there is no index
}

// State returns what the index holds. A nil index holds nothing.
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

// Open returns the index of a part, read through and found whole; nil if there is none that can be trusted. A nil Index has
// none.
func (ix *Index) Open(ctx context.Context, s *Store, part int) *IndexScan {
	if ix == nil {
		return nil
	}
	i := slices.IndexFunc(ix.parts, func(p *indexedPart) bool { return p.store == s && p.part == part })
	if i < 0 || !ix.cfg.Disks.Readable(ix.cfg.Dir) {
		return nil
	}
	opened := make(chan *IndexScan)
	ctx, cancel := context.WithTimeout(ctx, diskio.Overdue) // the index's disk may hang, and need not be the store's
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

// reopen opens the part's index; nil: there is none. An index that cannot be used is dropped, unless it has been
// replaced meanwhile.
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
