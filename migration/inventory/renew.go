package inventory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// An agent opens its stores' directories when it starts. By the time of a drain another directory may have the name: a cleanup removed
// the old one and made it again, or a disk was mounted there. The blocks to carry lie in the new directory, and nothing more must land
// in the one that is open.

// Renewed returns the stores with the directories that their paths name now. A store whose disk does not answer at once
// stays as it was.
func Renewed(stores []*Store, disks diskio.Disks, log *slog.Logger) []*Store {
	type answer struct {
		i   int
		now *Store
	}
	answers := make(chan answer, len(stores))
	for i, s := range stores {
		go func() { answers <- answer{i, s.renewed(disks, log)} }()
	}
	late := time.NewTimer(diskio.Suspect)
	defer late.Stop()
	all := slices.Clone(stores)
	for range stores {
		select {
		case a := <-answers:
			all[a.i] = a.now
		case <-late.C:
			return all
		}
	}
	return all
}

// renewed returns the store itself if its directories are those that it has open. A directory whose name is gone stays open, and so
// does one whose name is now an empty directory's: there is nothing to carry, and if a disk vanished that nobody has noticed yet,
// nothing may be forgotten.
func (s *Store) renewed(disks diskio.Disks, log *slog.Logger) *Store {
	now := s
	for i, path := range s.Paths {
		if !disks.Readable(path) {
			continue
		}
		named, err := os.Stat(path)
		if err != nil || !named.IsDir() {
			continue
		}
		open, err := s.Roots[i].Stat(".")
		if err != nil || os.SameFile(named, open) || !removed(open) && empty(path) {
			continue
		}
		root, err := os.OpenRoot(path)
		if err != nil {
			log.Error("a store's directory is another than when the agent started, and cannot be opened", "dir", path, "err", err)
			continue
		}
		if st, known := named.Sys().(*syscall.Stat_t); known && s.replaced.Swap(st.Ino) != st.Ino { // once, and not at each pass of a drain
			log.Warn("a store's directory is another than when the agent started: what is in it now is carried, and a restart has it served", "dir", path)
		}
		if now == s {
			now = &Store{
				StoreConfig: s.StoreConfig, Shape: s.Shape, System: s.System, Roots: slices.Clone(s.Roots),
				DirFiles: slices.Clone(s.DirFiles), AwayWhy: slices.Clone(s.AwayWhy), dead: slices.Clone(s.dead),
			}
			now.WatchAs(&s.Watched)
		}
		now.Roots[i] = root // a finalizer closes it with its last user, which may be a lane that hangs
		if f, err := root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0); err == nil {
			now.DirFiles[i] = f
		}
		if i < len(now.AwayWhy) {
			now.AwayWhy[i], now.dead[i] = nil, false
		}
	}
	return now
}

// Compare finds the directories of a store whose names belong to others now: nobody would look there for blocks that landed in them.
func (s *Store) Compare(disks diskio.Disks, log *slog.Logger) {
	displaced := make([]error, len(s.Roots))
	for i, path := range s.Paths {
		was := s.Displaced(path)
		displaced[i] = was // unless it can be told anew
		if !disks.Readable(path) {
			continue
		}
		named, err := os.Stat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		open, unknown := s.Roots[i].Stat(".")
		if unknown != nil {
			continue
		}
		if err == nil && os.SameFile(named, open) {
			displaced[i] = nil
			continue
		}
		what := "is another directory than when the agent started, mounted or made since"
		if err != nil {
			what = "was removed after the agent started"
		}
		displaced[i] = diskio.Away(fmt.Errorf("%s %s: nothing lands in it until the agent is restarted", path, what))
		if was == nil {
			log.Error("nothing lands in a store's directory any more", "store", s.Name, "err", displaced[i])
		}
	}
	s.displaced.Store(&displaced)
}

// Displaced returns why nothing lands in a directory of the store; nil: its path still names the directory that is
// open.
func (s *Store) Displaced(path string) error {
	displaced, i := s.displaced.Load(), slices.Index(s.Paths, filepath.Clean(path))
	if displaced == nil || i < 0 {
		return nil
	}
	return (*displaced)[i]
}

// removed reports whether an open directory was removed: a directory that has a name has at least one link.
func removed(dir fs.FileInfo) bool {
	st, known := dir.Sys().(*syscall.Stat_t)
	return known && st.Nlink == 0
}

func empty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF
}
