package receiver

import (
	"slices"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// nowhereLanding is the landing of a block that no disk has room for and that seems to be here already. Its sender has lost the
// receipt and sends it again, so its bytes are only summed up, and not written.
type nowhereLanding struct {
	why  error
	dirs []string // that the copy here lies in
}

func (nowhereLanding) data(int, wire.Frame) error { return nil }

func (l nowhereLanding) finish(_ wire.Frame, r catalog.Record) (*landed, error) {
	return &landed{Record: r, lying: &lying{dirs: l.dirs, noRoom: l.why}}, nil
}

func (nowhereLanding) abort() {}

// landNowhere takes a block in without room for it, if a block of its id, sizes and time is here or is being committed, on
// disks that a receipt may be given for. It reports false if there is none.
func (in *inbound) landNowhere(o wire.Opening, why error) bool {
	dirs := in.r.commit.under(o)
	if len(dirs) == 0 {
		if old, err := in.had(o); err == nil && resembles(&old.Opening, o) {
			dirs = in.r.under(old)
		}
	}
	if len(dirs) == 0 || slices.ContainsFunc(dirs, func(dir string) bool { return !in.r.disks.Keeps(dir) || in.r.hangs(dir) != nil }) {
		return false
	}
	in.landing, in.room, in.dirs = nowhereLanding{why, dirs}, nil, dirs
	return true
}

// under returns the directories of a block that is being committed; none if it is not. The copy that comes again is
// committed behind the first (awaits).
func (c *committer) under(o wire.Opening) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		first := func(l *landed) bool { return l.noRoom == nil && l.disowned == nil && resembles(&l.Opening, o) }
		if slices.ContainsFunc(s.busy, first) || slices.ContainsFunc(s.queue, first) {
			return s.dirs
		}
	}
	return nil
}

func resembles(o *wire.Opening, other wire.Opening) bool {
	return o.ID == other.ID && o.ModTime == other.ModTime && slices.Equal(o.Members, other.Members)
}

// acknowledge gives blocks that lie nowhere their receipts if their first copies are in the catalog by now.
func (c *committer) acknowledge(batch []*landed) {
	for _, l := range batch {
		if !l.awaits {
			continue
		}
		if first, err := c.vault.Catalog.Get(inventory.BlockID(l.ID)); err == nil && first.Sum == l.Sum && first.Bytes() == l.Bytes() {
			l.fault = nil
		}
	}
}
