package migration

import (
	"context"
	"os"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A node may be advised to go, or wait for its workloads, for weeks, in which its engines make blocks and remove them. By then nearly
// all blocks that it carried ahead are gone, and each pass would still read and remember their names.

// leastPast is how many blocks that are no more an account may name, whatever else is in it.
const leastPast = 4096

// shorten takes blocks that are not here any more out of the account of what passes moved. It is for a pass that met all blocks that
// are here, and that another one follows.
func (d *Drain) shorten(ctx context.Context) {
	if !d.cfg.Once || d.cfg.Own || len(d.cfg.Only)+len(d.cfg.Again) > 0 || d.survey.missed.Load() || !d.account.history.mostPast() {
		return
	}
	path := manifest.Path(d.cfg.Dir, manifest.Moved)
	is, err := os.Stat(path)
	if err == nil {
		_, err = manifest.CopyLines(path, manifest.AllLines(path), is.ModTime(), func(e manifest.Entry) bool {
			toTell := e.Outcome != manifest.Struck || e.Tag() != "" // a peer that was away may have it as it was
			return ctx.Err() != nil || toTell && d.account.history.here.Has(e.ID)
		})
	}
	if err != nil {
		d.log.Warn("cannot shorten a manifest that names many blocks which are gone: that costs memory and time", "dir", d.cfg.Dir, "err", err)
	}
}

// sees notes that a block is here, in whatever version.
func (s *history) sees(id inventory.BlockID) {
	if s.here == nil { // nobody asks: no scan need wait for the lock
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.here.Add(string(id))
}

// mostPast reports whether most of what earlier passes moved is here no more.
func (s *history) mostPast() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recalled-s.met > max(s.met, leastPast)
}
