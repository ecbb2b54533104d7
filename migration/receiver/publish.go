package receiver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// errOccupied says that a file of that name is there which did not land earlier: it is never overwritten.
var errOccupied = errors.New("a file of that name is there already")

// errApart says that a staged file cannot be moved to its place, because that is on another file system.
var errApart = errors.New("its directory is not on the file system of the store's")

// isApart reports whether another file system is mounted on the way to a place, or the same one again: a file staged in the store's
// directory cannot be moved there. On a kernel that cannot tell (Linux before 5.6) it reports false.
func isApart(s *inventory.Store, at place) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV}
	for dir := path.Dir(at.path); dir != "."; dir = path.Dir(dir) {
		fd, err := diskio.Retry(func() (int, error) { return unix.Openat2(int(s.DirFiles[at.root].Fd()), dir, &how) })
		if err == nil {
			unix.Close(fd)
		}
		if err != unix.ENOENT {
			return err == unix.EXDEV
		}
	}
	return false
}

// publish gives staged files their names, durably: first the bytes are synced, and the intent if there is one, then names are given, an
// index's name after all else. A block that cannot be published has its fault noted and leaves nothing behind. publish tells at which of
// the store's directories it is.
func publish(s *inventory.Store, blocks []*landed, in *intent, c *catalog.Catalog, disks diskio.Disks, at *diskio.Work) {
	var staged []place
	if in != nil {
		staged = append(staged, in.place)
	}
	bytes := map[int]int64{} // that the disk had not begun to write, by directory
	for _, l := range blocks {
		for _, f := range l.files {
			staged = append(staged, place{f.root, f.from})
			bytes[f.root] += f.unflushed
		}
	}
	failAll(blocks, syncAll(s, staged, at, func(root int, took time.Duration, err error) {
		if err != nil {
			disks.Fault(s.Paths[root], err)
		} else if bytes[root] > 0 {
			disks.Flushed(s.Paths[root], bytes[root], took)
		}
	}))
	for _, last := range []bool{false, true} {
		var dirs []place
		for _, l := range blocks {
			for i := range l.files {
				f := &l.files[i]
				if l.fault != nil || f.last != last {
					continue
				}
				at.Begin(&s.Paths[f.root])
				if l.fault = giveName(s, f, l, c); l.fault == nil {
					dirs = append(dirs, parents(place{f.root, f.to})...)
				}
			}
		}
		unpublish(s, blocks, at)
		// Twice: a power cut must not keep an index's name and lose its data's.
		failAll(blocks, syncAll(s, dirs, at, func(root int, _ time.Duration, err error) {
			if err != nil {
				disks.Fault(s.Paths[root], err)
			}
		}))
	}
	unpublish(s, blocks, at)
}

// giveName moves a staged file to its place. A file that appeared there since the landing began is not overwritten, unless it
// came from a peer too.
func giveName(s *inventory.Store, f *stagedFile, l *landed, c *catalog.Catalog) error {
	root := s.Roots[f.root]
	err := root.Link(f.from, f.to)
	if errors.Is(err, fs.ErrNotExist) { // mostly the directory is there
		if err := makeDir(s, f.root, path.Dir(f.to)); err != nil {
			return err
		}
		err = root.Link(f.from, f.to)
	}
	switch {
	case err == nil:
		f.named = true
		return root.Remove(f.from)
	case linkless(err):
		return renameFile(s, f, l, c)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if err := vacant(s, inventory.BlockID(l.ID), c, place{f.root, f.to}); err != nil {
		return err
	}
	if err := root.Rename(f.from, f.to); err != nil {
		return err
	}
	f.named = true
	return nil
}

// renameFile gives a file its name on a file system without hard links. A file that an engine puts there between the two calls is
// overwritten.
func renameFile(s *inventory.Store, f *stagedFile, l *landed, c *catalog.Catalog) error {
	if err := vacant(s, inventory.BlockID(l.ID), c, place{f.root, f.to}); err != nil {
		return err
	}
	if err := s.Roots[f.root].Rename(f.from, f.to); err != nil {
		return err
	}
	f.named = true
	return nil
}

// linkless reports whether a file system has no hard links: FAT and network file systems say so in different ways (link(2)).
func linkless(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// vacant returns an error unless a file may be put there: nothing is there, or only what landed there for the same
// block.
func vacant(s *inventory.Store, id inventory.BlockID, c *catalog.Catalog, at place) error {
	info, err := s.Roots[at.root].Lstat(at.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		var r catalog.Record
		if r, err = c.Get(id); err == nil {
			for _, p := range r.Placed {
				if p.Root == at.root && p.Path == at.path && p.ModTime == info.ModTime().UnixNano() {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s: %w", path.Join(s.Paths[at.root], at.path), errOccupied)
}

// unpublish removes what was staged or named for blocks that have a fault.
func unpublish(s *inventory.Store, blocks []*landed, at *diskio.Work) {
	for _, l := range blocks {
		if l.fault != nil {
			takeBack(s, l, at)
		}
	}
}

func takeBack(s *inventory.Store, l *landed, at *diskio.Work) {
	for i := range l.files {
		f := &l.files[i]
		at.Begin(&s.Paths[f.root])
		_ = s.Roots[f.root].Remove(f.from) // the sweep at the next start finds what stays
		if f.named {
			_ = s.Roots[f.root].Remove(f.to)
			f.named = false
		}
	}
}

// place is a path in one of a store's directories.
type place struct {
	root int
	path string
}

// parents returns the directories that a name depends on: a new directory's own name is in the one above it.
func parents(p place) (dirs []place) {
	for dir := path.Dir(p.path); ; dir = path.Dir(dir) {
		dirs = append(dirs, place{p.root, dir})
		if dir == "." {
			return dirs
		}
	}
}

// syncAtOnce is up to how many files or directories are synced one by one; beyond it, syncing the whole file system is
// cheaper (272 us a file against 32-62 us). That is enough for new files and names only: where bytes were written into space that a
// file had, XFS's log may be clean, and then its syncfs does not have the disk empty its cache.
const syncAtOnce = 16

// syncAll syncs files or directories: one by one when they are few, else their file systems. A file that is gone needs
// no sync: an engine that removes one application's directory must not fail the others' blocks. told hears of each of
// the store's directories that was synced in.
func syncAll(s *inventory.Store, places []place, at *diskio.Work, told func(root int, took time.Duration, err error)) error {
	for i := range s.Roots {
		distinct := map[string]bool{}
		for _, p := range places {
			if p.root == i {
				distinct[p.path] = true
			}
		}
		if len(distinct) == 0 {
			continue
		}
		began := time.Now()
		at.BeginAt(&s.Paths[i], began)
		err := syncIn(s, i, distinct)
		told(i, time.Since(began), err)
		if err != nil {
			return err
		}
	}
	return nil
}

func syncIn(s *inventory.Store, root int, distinct map[string]bool) error {
	each := (*os.File).Sync
	if len(distinct) > syncAtOnce {
		if err := syncPath(s, root, ".", func(f *os.File) error { return unix.Syncfs(int(f.Fd())) }); err != nil {
			return err
		}
		each = refused
	}
	for p := range distinct {
		if err := syncPath(s, root, p, each); err != nil {
			return err
		}
	}
	return nil
}

// refused returns the error of an earlier write to a file, which syncfs may not have told: the kernel reports it once for a file
// system, to the first syncfs, which may be another store's or another program's. For a file it reports the error to the first who
// asks that file, even if that one opened it later; nobody else asks staged files.
func refused(f *os.File) error {
	return diskio.UnlessMissing(unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE))
}

func syncPath(s *inventory.Store, root int, p string, sync func(*os.File) error) error {
	f, err := s.Roots[root].Open(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(sync(f), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path.Join(s.Paths[root], p), err)
	}
	return nil
}
