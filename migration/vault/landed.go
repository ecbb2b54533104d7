package vault

import (
	"errors"
	"io"
	"io/fs"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// LandedIn returns the directory that a member of a landed block lies in.
func (v *Vault) LandedIn(s *inventory.Store, r catalog.Record, i int) string {
	if r.Segment != 0 {
		dir, _ := v.Home(r.Segment)
		return dir
	}
	return s.Paths[r.Placed[i].Root]
}

// OpenLanded opens a member of a block that landed in the vault or in a store. fs.ErrNotExist may also mean that the file in
// the store is no longer the one that landed: its engine has taken it over, and it is the store's own now. ahead is how many
// bytes the disk is asked for ahead of the reading, for a reader that reads on behind the block.
func (v *Vault) OpenLanded(s *inventory.Store, r catalog.Record, i int, ahead int64) (io.ReadSeekCloser, error) {
	switch {
	case r.Segment != 0:
		c, err := v.member(r, i, ahead)
		if errors.Is(err, fs.ErrNotExist) {
			if now, is := v.unpacked(r); is { // it has become files meanwhile
				return v.OpenLanded(s, now, i, ahead)
			}
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		return c, nil
	case s == nil || i >= len(r.Placed) || r.Placed[i].Root >= len(s.Roots):
		return nil, fs.ErrNotExist
	}
	p := r.Placed[i]
	if err := s.Away(s.Paths[p.Root]); err != nil {
		return nil, err
	}
	f, err := s.Open(inventory.Member{Root: p.Root, Path: p.Path})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.ModTime().UnixNano() != p.ModTime {
		f.Close()
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	c := newChunkReader(f, r.Members[i].Bytes, PlacedChunks{Sums: p.Chunks}, ahead)
	c.modified = p.ModTime
	return c, nil
}
