package receiver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// volumes are the directories that blocks land and lie in: the vault's and the stores'. They know which of them hang, and what room there
// is.
type volumes struct {
	cfg    *Config
	disks  diskio.Disks
	stores map[string]*inventory.Store

	mu    sync.Mutex
	stuck []string // directories whose disks hang under something
}

// avoid sets which directories hang under something, and reports whether one does no more.
func (v *volumes) avoid(stuck []string) (free bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	free = slices.ContainsFunc(v.stuck, func(dir string) bool { return !slices.Contains(stuck, dir) })
	v.stuck = stuck
	return free
}

// open returns those of the directories that new blocks may be put in: their disks are well, and nothing hangs there. It returns
// none while the catalog's disk is not well, for each block needs a record there.
func (v *volumes) open(dirs []string) []string {
	v.mu.Lock()
	stuck := v.stuck
	v.mu.Unlock()
	if catalog := v.cfg.Vault.Dir; slices.Contains(stuck, catalog) || !v.disks.Keeps(catalog) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		return slices.Contains(stuck, dir) || !v.disks.Writable(dir)
	})
}

// answers returns a SilentError if a landed block lies where a read may never come back, and an awayError if its disk is not
// mounted.
func (v *volumes) answers(old catalog.Record) error {
	if old.Segment != 0 {
		dir, err := v.cfg.Vault.Home(old.Segment)
		if err != nil {
			return err
		}
		return v.hangs(dir)
	}
	s := v.stores[inventory.BlockID(old.ID).Store()]
	if s == nil {
		return nil
	}
	var errs []error
	for _, p := range old.Placed {
		if p.Root < len(s.Paths) {
			errs = append(errs, v.hangs(s.Paths[p.Root]), s.Away(s.Paths[p.Root]))
		}
	}
	return errors.Join(errs...)
}

// hangs returns a SilentError for a directory that a read may not come back from.
func (v *volumes) hangs(dir string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.disks.Readable(dir) || slices.Contains(v.stuck, dir) {
		return diskio.Silence(dir)
	}
	return nil
}

// sound returns an error unless every disk of the store is there and answers. A block lands in its place only where the
// receiver is sure that no other directory has a file of that name.
func (v *volumes) sound(s *inventory.Store) error {
	for _, p := range s.Paths {
		if err := cmp.Or(v.hangs(p), s.Away(p), s.Displaced(p)); err != nil {
			return err
		}
	}
	return nil
}

// fault reports an error that is a disk's own.
func (v *volumes) fault(dir string, err error) {
	if diskio.IsFault(err) {
		v.disks.Fault(dir, err)
	}
}

// hangsIn reports whether work hangs on a disk, and in which directory.
func (v *volumes) hangsIn(w *diskio.Work, now time.Time) (dir string, hangs bool) {
	dir, took, ok := w.On(now)
	return dir, ok && (took >= diskio.Overdue || took >= diskio.Suspect && !v.disks.Readable(dir))
}

func (v *volumes) storesAway() bool {
	away := func(dir string) bool { return v.hangs(dir) != nil }
	return slices.ContainsFunc(v.cfg.Stores, func(s *inventory.Store) bool { return slices.ContainsFunc(s.Paths, away) })
}

// roomIn returns the room in these directories. Directories on one file system share its room; directories whose file
// system is unknown count as one, for they may share it.
func (v *volumes) roomIn(places []string) (is Room) {
	most := map[string]int64{}
	for _, p := range places {
		if left, err := v.cfg.Room(p); err == nil { // an unknown room counts as none
			on := v.disks.FileSystem(p)
			most[on] = max(most[on], left)
		}
	}
	for _, left := range most {
		is.Bytes, is.LargestBytes = is.Bytes+left, max(is.LargestBytes, left)
	}
	return is
}

// most is the room of the roomiest of these directories.
func (v *volumes) most(places []string) int64 { return v.roomIn(places).LargestBytes }

// knows reports whether the room of all these directories is known. It is not until somebody has looked at their disks.
func (v *volumes) knows(places []string) bool {
	return !slices.ContainsFunc(places, func(p string) bool {
		_, err := v.cfg.Room(p)
		return err != nil
	})
}

// take reserves the first bytes of a block on the best of these directories that have room for the whole block.
func (v *volumes) take(bytes, first int64, among []string) (dir string, release func(int64), err error) {
	open := v.open(among)
	roomy := open
	if first < bytes {
		roomy = slices.DeleteFunc(slices.Clone(open), func(dir string) bool {
			left, err := v.cfg.Room(dir)
			return err != nil || left < bytes
		})
	}
	if dir, release, ok := v.disks.Take(min(first, bytes), roomy); ok {
		return dir, release, nil
	}
	err = &FullError{NeedBytes: bytes, HasBytes: v.most(open)}
	if len(open) == 0 {
		err = fmt.Errorf("no disk takes blocks, or none their records in %s: %s: %w", v.cfg.Vault.Dir, strings.Join(among, ", "), err)
	}
	return "", nil, err
}

// homes reserves room for the first bytes of each member of a block in its store: on the disk where the layout puts the
// member, or if the layout does not care, on the best of the store's disks. A block that comes again goes where its
// earlier version lies, or the two would lie side by side. had returns the record that is under the block's id.
func (v *volumes) homes(s *inventory.Store, o wire.Opening, first int64, had func(wire.Opening) (catalog.Record, error)) (roots []int, release func(written int64), err error) {
	id, need := inventory.BlockID(o.ID), map[int]int64{}
	for _, m := range o.Members {
		root, _ := s.Shape.Place(s, id, m.Name)
		roots = append(roots, root)
		need[root] += m.Bytes
	}
	if s.Shape.Anywhere() {
		among := s.Paths
		if old, err := had(o); err == nil && len(old.Placed) > 0 && old.Placed[0].Root < len(s.Paths) {
			among = s.Paths[old.Placed[0].Root:][:1]
		}
		dir, release, err := v.take(o.Bytes(), first, among)
		return slices.Repeat([]int{slices.Index(s.Paths, dir)}, len(o.Members)), release, err
	}
	var releases []func(int64)
	release = func(written int64) {
		for _, f := range releases {
			f(written)
		}
	}
	for root, bytes := range need {
		_, undo, err := v.take(bytes, first, []string{s.Paths[root]})
		if err != nil {
			release(0)
			return nil, nil, err
		}
		releases = append(releases, func(written int64) { undo(min(written, bytes)) })
	}
	return roots, release, nil
}
