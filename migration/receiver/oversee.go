package receiver

import (
	"context"
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
	for _, u := range r.unpackers.all {
		u.look(now)
	}
	under, given := r.streams.heldUp(now, r.disks)
	// Before anybody is answered: a sender comes again at once, and must not be sent to the same disk.
	free := r.volumes.avoid(slices.Concat(r.commit.stuck(now), r.scrubber.stuck(now), under))
	for _, u := range r.unpackers.all {
		if free {
			u.tryAgain()
		}
	}
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

// sayRemade logs that the catalog was made anew, and reports each block that is no longer whole.
func (r *Receiver) sayRemade() {
	for _, m := range r.cfg.Vault.TakeRemade() {
		if m.Ruin != nil {
			r.cfg.Log.Error("the catalog of what landed here could not be used, and is made anew from the segments; blocks that landed in their place are their store's own from now on",
				"err", m.Ruin.Why, "aside", m.Ruin.Aside)
			continue
		}
		r.cfg.Log.Warn("read segments for the new catalog", "dir", m.Dir, "blocks", m.Found.Blocks, "bytes", m.Found.Bytes, "broken", len(m.Broken)+m.Others, "unread", len(m.Unread))
		for _, err := range m.Unread {
			r.cfg.Log.Error("a segment cannot be read to its end: the blocks that lie behind are not known, and are looked for at the next start", "err", err)
			r.fault(m.Dir, err)
		}
		for _, h := range m.Broken {
			r.broke(h, wire.ErrCorrupt)
		}
	}
}
