package receiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// oversee keeps a disk that hangs from holding up anything on other disks. It looks when the health of a disk changes,
// and otherwise each LookAfter, which is often enough for the senders that wait.
func (r *Receiver) oversee(ctx context.Context) {
	tick := time.NewTicker(diskio.LookAfter)
	defer tick.Stop()
	said := map[string]bool{}
	for {
		changed := r.disks.Changed()
		r.look(time.Now())
		r.compare()
		r.revive(ctx, said)
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look answers for the blocks that a disk holds up, and gives up the streams that wait for the disk.
func (r *Receiver) look(now time.Time) {
	stuck := r.commit.stuck(now)
	for _, u := range r.unpackers.all {
		u.look(now)
	}
	var given []*inbound
	r.mu.Lock()
	for w := range r.backs {
		if dir, hangs := r.hangsIn(w, now); hangs {
			stuck = append(stuck, dir)
		}
	}
	for in, lost := range r.live {
		dir, took, ok := in.work.On(now)
		if !ok || took < diskio.Suspect || took < diskio.Overdue && r.disks.Keeps(dir) {
			continue
		}
		stuck = append(stuck, dir)
		if !lost {
			r.live[in] = true
			in.why = diskio.Silence(dir)
			given = append(given, in)
		}
	}
	r.stuck = stuck // before anybody is answered: a sender comes again at once, and must not be sent to the same disk
	r.mu.Unlock()
	r.commit.refuse(now)
	for _, in := range given {
		r.disks.Fault(in.why.Dir, in.why)
		r.commit.disown(in.unanswered(), in.why)
		close(in.lost)
	}
}

// compare checks whether the stores' directories are still those that blocks land in.
func (r *Receiver) compare() {
	for _, s := range r.cfg.Stores {
		if s.Land == inventory.LandPlace && s.Comparing.CompareAndSwap(false, true) {
			go func() {
				defer s.Comparing.Store(false)
				s.Compare(r.disks, r.cfg.Log)
			}()
		}
	}
}

// revive has the vault use directories again that are back, and logs which are away and which came back.
func (r *Receiver) revive(ctx context.Context, said map[string]bool) {
	away := r.cfg.Vault.Away()
	for dir, why := range away {
		if !said[dir] {
			said[dir] = true
			r.cfg.Log.Error("a directory of the vault cannot be used: what lies there is not held until it is back", "dir", dir, "err", why)
		}
	}
	if len(said) == 0 {
		return
	}
	moment, cancel := context.WithTimeout(ctx, diskio.Suspect)
	defer cancel()
	r.cfg.Vault.Revive(moment)
	still := r.cfg.Vault.Away()
	for dir := range said {
		if still[dir] == nil && r.tell(dir) == nil { // else the next look does
			delete(said, dir)
			r.cfg.Log.Info("a directory of the vault is back", "dir", dir)
			r.sayRemade()
		}
	}
}

// tell reports that the blocks in a directory are held again. It returns an error if the catalog did not say which those are.
func (r *Receiver) tell(dir string) error {
	if r.cfg.Landed == nil {
		return nil
	}
	var all []vault.Held
	for h, err := range r.cfg.Vault.HeldIn(dir) {
		if diskio.IsSilent(err) {
			return err
		}
		if err == nil {
			all = append(all, h)
		}
		if len(all) == catalog.Batch {
			r.cfg.Landed(all)
			all = nil
		}
	}
	if len(all) > 0 {
		r.cfg.Landed(all)
	}
	return nil
}

func (r *Receiver) come(in *inbound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[in] = false
}

func (r *Receiver) gone(in *inbound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, in)
}

// open returns those of the directories that new blocks may be put in: their disks are well, and nothing hangs there. It returns
// none while the catalog's disk is not well, for each block needs a record there.
func (r *Receiver) open(dirs []string) []string {
	r.mu.Lock()
	stuck := r.stuck
	r.mu.Unlock()
	if catalog := r.cfg.Vault.Dir; slices.Contains(stuck, catalog) || !r.disks.Keeps(catalog) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		return slices.Contains(stuck, dir) || !r.disks.Writable(dir)
	})
}

// answers returns a SilentError if a landed block lies where a read may never come back, and an awayError if its disk is not
// mounted.
func (r *Receiver) answers(old catalog.Record) error {
	if old.Segment != 0 {
		dir, err := r.cfg.Vault.Home(old.Segment)
		if err != nil {
			return err
		}
		return r.hangs(dir)
	}
	s := r.stores[inventory.BlockID(old.ID).Store()]
	if s == nil {
		return nil
	}
	var errs []error
	for _, p := range old.Placed {
		if p.Root < len(s.Paths) {
			errs = append(errs, r.hangs(s.Paths[p.Root]), s.Away(s.Paths[p.Root]))
		}
	}
	return errors.Join(errs...)
}

// hangs returns a SilentError for a directory that a read may not come back from.
func (r *Receiver) hangs(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.disks.Readable(dir) || slices.Contains(r.stuck, dir) {
		return diskio.Silence(dir)
	}
	return nil
}

// sound returns an error unless every disk of the store is there and answers. A block lands in its place only where the
// receiver is sure that no other directory has a file of that name.
func (r *Receiver) sound(s *inventory.Store) error {
	for _, p := range s.Paths {
		if err := cmp.Or(r.hangs(p), s.Away(p), s.Displaced(p)); err != nil {
			return err
		}
	}
	return nil
}

// fault reports an error that is a disk's own.
func (r *Receiver) fault(dir string, err error) {
	if diskio.IsFault(err) {
		r.disks.Fault(dir, err)
	}
}

// sayRemade logs that the catalog was made anew, and reports each block that is no longer whole.
func (r *Receiver) sayRemade() {
	for _, m := range r.cfg.Vault.TakeRemade() {
		if m.Ruin != nil {
			r.cfg.Log.Error("the catalog of what landed here could not be used, and is made anew from the segments; blocks that landed in their place are their store's own from now on",
				"err", m.Ruin.Why, "aside", m.Ruin.Aside)
			continue
		}
		r.cfg.Log.Warn("read segments for the new catalog", "dir", m.Dir, "blocks", m.Found.Blocks, "bytes", m.Found.Bytes, "broken", len(m.Broken)+m.Others)
		for _, h := range m.Broken {
			r.broke(h, wire.ErrCorrupt)
		}
	}
}
