package migration

import "slices"

// nowhere is the landing of a block that no disk has room for and that seems to be here already, since its sender lost the
// receipt: its bytes are only summed up.
type nowhere struct {
	why  error
	dirs []string // that it lies in, as it is here
}

func (nowhere) data(int, frame) error { return nil }

func (l nowhere) finish(_ frame, r record) (*landed, error) {
	return &landed{record: r, dirs: l.dirs, noRoom: l.why}, nil
}

func (nowhere) abort() {}

// landNowhere takes a block in without room for it if one of its id, sizes and time is here, on disks that a receipt may be
// given for.
func (in *inbound) landNowhere(o opening, why error) bool {
	old, err := in.r.cfg.Vault.catalog.get(BlockID(o.ID))
	if err != nil || old.ModTime != o.ModTime || !slices.Equal(old.Members, o.Members) {
		return false
	}
	dirs := in.r.under(old)
	if len(dirs) == 0 || slices.ContainsFunc(dirs, func(dir string) bool { return !in.r.disks.Keeps(dir) || in.r.hangs(dir) != nil }) {
		return false
	}
	in.landing, in.room, in.dirs = nowhere{why, dirs}, nil, dirs
	return true
}

// under are the directories that a block which is here lies in; none where that is not known now.
func (r *Receiver) under(rec record) (dirs []string) {
	if rec.Segment != 0 {
		dir, err := r.cfg.Vault.home(rec.Segment)
		if err != nil {
			return nil
		}
		return []string{dir}
	}
	s := r.stores[BlockID(rec.ID).Store()]
	for _, p := range rec.Placed {
		if s == nil || p.Root >= len(s.Paths) {
			return nil
		}
		dirs = append(dirs, s.Paths[p.Root])
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
