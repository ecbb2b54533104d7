package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// openedDir is a store's open directory. If its disk is dead, root is a stand-in and why is the reason: the node has other disks, and
// an agent that does not start protects none of them.
type openedDir struct {
	root *os.Root
	made bool
	why  error
	err  error
}

// openRoots opens the directories of a store side by side. A disk that does not answer within patience gets a stand-in.
func openRoots(paths []string, patience time.Duration) []openedDir {
	answers := make([]chan openedDir, len(paths))
	for i, path := range paths {
		answers[i] = make(chan openedDir, 1)
		go func() {
			root, made, err := openRoot(path)
			answers[i] <- openedDir{root: root, made: made, err: err}
		}()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := make([]openedDir, len(paths))
	for i, path := range paths {
		select {
		case all[i] = <-answers[i]:
		case <-ctx.Done():
			select {
			case all[i] = <-answers[i]:
			default: // a root that comes later is left to the garbage collector
				all[i].err = diskio.Silence(path)
			}
		}
		if err := all[i].err; diskio.IsFault(err) || diskio.IsSilent(err) {
			all[i] = standIn(path, err)
		}
	}
	return all
}

func openRoot(path string) (root *os.Root, made bool, err error) {
	// The path's type is not asked for first, as MkdirAll does: a file system that has shut down does not tell it.
	if root, err = os.OpenRoot(path); !errors.Is(err, os.ErrNotExist) {
		return root, false, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, false, err
	}
	root, err = os.OpenRoot(path)
	return root, true, err
}

// inMemory is a file system in memory, of which shm_overview(7) says that it is there. A unit with ProtectSystem=strict can write to it.
const inMemory = "/dev/shm"

// standIn returns an empty directory without a name, in which nothing can be made. It is made in memory where that is possible: the usual
// place may be closed to the agent, full, or on the disk that is dead.
func standIn(path string, why error) openedDir {
	dir, err := os.MkdirTemp(inMemory, "lifeboat-")
	if err != nil {
		dir, err = os.MkdirTemp("", "lifeboat-")
	}
	if err != nil {
		return openedDir{err: errors.Join(why, err)}
	}
	root, err := os.OpenRoot(dir)
	if err = errors.Join(err, syscall.Rmdir(dir)); err != nil {
		return openedDir{err: errors.Join(why, err)}
	}
	return openedDir{root: root, why: diskio.Away(fmt.Errorf("%s cannot be opened (%w): nothing is carried from there before its disk is well, and nothing lands there before the agent is restarted then", path, why))}
}
