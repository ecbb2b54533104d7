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

// An agent opens the directories of its stores as it starts. By the time of a drain another one may have a directory's name: who
// cleans up removes it and makes it again, and a disk may have been mounted there. What is to be carried lies in that, and nothing more
// is to land in the one that is open.

// Renewed are the stores as their paths name them now. A disk that does not say so at once has its store left as it was.
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

// renewed is the store itself, if its directories are those that it has open. One that has no name any more stays open, and so does
// one whose name is an empty directory's now: nothing is there to be carried, and of a disk that vanished, which nobody has noticed
// yet, nothing may be forgotten.
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
			now = &Store{StoreConfig: s.StoreConfig, Shape: s.Shape, System: s.System, Roots: slices.Clone(s.Roots), DirFiles: slices.Clone(s.DirFiles), AwayWhy: slices.Clone(s.AwayWhy), dead: slices.Clone(s.dead)}
			now.WatchAs(&s.Watched)
		}
		now.Roots[i] = root // closed with the last that refers to it, which may be a lane that hangs
		if f, err := root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0); err == nil {
			now.DirFiles[i] = f
		}
		if i < len(now.AwayWhy) {
			now.AwayWhy[i], now.dead[i] = nil, false
		}
	}
	return now
}

// Compare finds the directories of a store that have lost their names to others: what landed in them now, nobody would look for there.
func (s *Store) Compare(disks diskio.Disks, log *slog.Logger) {
	displaced := make([]error, len(s.Roots))
	for i, path := range s.Paths {
		was := s.Displaced(path)
		displaced[i] = was // unless it can be told
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

// Displaced says why nothing lands in a directory of the store's; nil: its name is still that of the one that is open.
func (s *Store) Displaced(path string) error {
	displaced, i := s.displaced.Load(), slices.Index(s.Paths, filepath.Clean(path))
	if displaced == nil || i < 0 {
		return nil
	}
	return (*displaced)[i]
}

// removed reports whether a directory that is open was removed: one that has a name has one link at least.
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
