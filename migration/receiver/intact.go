package receiver

import (
	"errors"
	"io"
	"slices"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// intact reads a landed block back, and returns what is wrong with it. A receipt for a block that comes again relies on this as
// any receipt relies on a commit. intact calls step, with the directory that it reads from, before it opens a member and before
// each chunk.
func (v *volumes) intact(old catalog.Record, step func(dir *string)) error {
	return v.each(old, func(_ int, dir *string) { step(dir) }, func(dir *string, m wire.MemberSize, c io.Reader) error {
		return readThrough(m, c, func() { step(dir) })
	})
}

// present returns what is wrong with a landed block, as far as that shows without reading it.
func (v *volumes) present(old catalog.Record, step func(dir *string)) error {
	return v.each(old, func(_ int, dir *string) { step(dir) }, func(*string, wire.MemberSize, io.Reader) error { return nil })
}

// each opens the members of a landed block, and before each calls next with its number and its directory.
func (v *volumes) each(old catalog.Record, next func(member int, dir *string), do func(*string, wire.MemberSize, io.Reader) error) error {
	if err := v.answers(old); err != nil {
		return err
	}
	for i, m := range old.Members {
		dir := v.lies(old, i)
		next(i, dir)
		c, err := v.cfg.Vault.OpenLanded(v.stores[inventory.BlockID(old.ID).Store()], old, i, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(do(dir, m, c), c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// readThrough reads a member to its end, and calls step before each chunk.
func readThrough(m wire.MemberSize, c io.Reader, step func()) (err error) {
	for left := m.Bytes; left > 0 && err == nil; left -= wire.ChunkBytes {
		step()
		_, err = io.CopyN(io.Discard, c, min(left, wire.ChunkBytes))
	}
	return err
}

// lies returns the directory that a member of a block lies in; the vault's first where the directory is not known.
func (v *volumes) lies(rec catalog.Record, member int) *string {
	if rec.Segment != 0 {
		dir, _ := v.cfg.Vault.Home(rec.Segment)
		return &dir
	}
	if s := v.stores[inventory.BlockID(rec.ID).Store()]; s != nil && member < len(rec.Placed) && rec.Placed[member].Root < len(s.Paths) {
		return &s.Paths[rec.Placed[member].Root]
	}
	return &v.cfg.Vault.Dir
}

// under returns the directories that a landed block lies in; none if that is not known now.
func (v *volumes) under(rec catalog.Record) (dirs []string) {
	if rec.Segment != 0 {
		dir, err := v.cfg.Vault.Home(rec.Segment)
		if err != nil {
			return nil
		}
		return []string{dir}
	}
	s := v.stores[inventory.BlockID(rec.ID).Store()]
	for _, p := range rec.Placed {
		if s == nil || p.Root >= len(s.Paths) {
			return nil
		}
		dirs = append(dirs, s.Paths[p.Root])
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
