package inventory

import (
	"path"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Glance finds out that a store of plain files has nothing under a name, as it has not for nearly every block that
// lands. It costs one call for a name, and none if the name's directory is not there. It keeps the last directory open,
// since blocks come as a sender met them, a directory at a time.
type Glance struct {
	store *Store
	dir   string
	fds   []int // of dir in each of the store's directories; -1: it is not there, or the disk does not answer
}

// Close closes the directory.
func (g *Glance) Close() {
	for _, fd := range g.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	g.store, g.fds = nil, nil
}

// Lacks reports true only if the store has nothing under the id. It may report false without need. It calls at with each of the
// store's directories before it looks there.
func (g *Glance) Lacks(s *Store, id BlockID, at func(dir *string)) bool {
	if _, plain := s.Shape.(FilesLayout); !plain {
		return false
	}
	dir, name := path.Split(id.Name())
	if g.store != s || g.dir != dir {
		g.Close()
		if !g.open(s, dir, at) {
			return false
		}
	}
	for i, fd := range g.fds {
		var st unix.Stat_t
		if fd < 0 {
			continue
		}
		at(&s.Paths[i])
		if _, err := diskio.Retry(func() (int, error) { return 0, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != unix.ENOENT {
			return false
		}
	}
	return true
}

// open opens dir in each of the store's directories. It reports false if it cannot tell whether one of them has it.
func (g *Glance) open(s *Store, dir string, at func(dir *string)) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	for i := range s.DirFiles {
		if s.Readable(s.Paths[i]) != nil {
			g.fds = append(g.fds, -1)
			continue
		}
		at(&s.Paths[i])
		fd, err := diskio.Retry(func() (int, error) { return unix.Openat2(int(s.DirFiles[i].Fd()), "./"+dir, &how) })
		if err == unix.ENOENT {
			fd = -1
		} else if err != nil {
			g.Close()
			return false
		}
		g.fds = append(g.fds, fd)
	}
	g.store, g.dir = s, dir
	return true
}
