package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// blockManager is one blockmgr directory.
type blockManager struct {
	root  int
	path  string
	base  string
	scope string
	app   bool     // the scope is an application's id
	dir   *os.Root // nil: reached from the store's directory
}

func newBlockManager(root int, p string) blockManager {
	base := path.Base(p)
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		if applicationDir.MatchString(part) {
			return blockManager{root: root, path: p, base: base, scope: part, app: true}
		}
	}
	return blockManager{root: root, path: p, base: base, scope: base}
}

// mayShare reports whether two directories may belong to one executor: the same application, or nothing known of either.
func (m blockManager) mayShare(other blockManager) bool {
	if m.app || other.app {
		return m.scope == other.scope
	}
	return true
}

// managers are the blockmgr directories of a store: a few for each executor that ever ran here. mates are those found to
// be one executor's: an index in one agreed with the data in the other, so their other files are looked for there first.
type managers struct {
	all      []blockManager
	mates    map[side]blockManager
	checksum string // the algorithm met last: an application has one
}

// side asks which manager the executor of one has in another local directory.
type side struct {
	of   blockManager
	root int
}

var errAmbiguous = errors.New("cannot tell which belongs")

// maxManagerDepth is how deep below a store's directory a blockmgr directory is looked for. YARN nests deepest:
// usercache/USER/appcache/APP/blockmgr-UUID.
const maxManagerDepth = 8

// lately returns the managers as they were at most a moment ago: who looks for one block often looks for a thousand.
func (s *Store) lately() *managers {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seenAt.IsZero() || time.Since(s.seenAt) > time.Second {
		m, _ := s.managers(context.Background(), func(error) bool { return true })
		s.seen, s.seenAt = m.all, time.Now()
	}
	return &managers{all: s.seen, mates: map[side]blockManager{}}
}

func (s *Store) managers(ctx context.Context, fault func(error) bool) (m *managers, ok bool) {
	m = &managers{mates: map[side]blockManager{}}
	for i, root := range s.roots {
		if err := s.readable(s.Paths[i]); err != nil {
			if !fault(err) {
				return m, false
			}
			continue
		}
		enter := func(dir string) bool {
			base := path.Base(dir)
			if blockManagerDir.MatchString(base) {
				m.all = append(m.all, newBlockManager(i, dir))
				return false
			}
			return base != stagingDir && strings.Count(dir, "/") < maxManagerDepth
		}
		w := walk{root: root, enter: enter, visit: func(*seen) bool { return true }, fault: fault}
		if !w.below(ctx, ".") {
			return m, false
		}
	}
	return m, true
}

// maxOpenManagers bounds the directories that a scan keeps open.
const maxOpenManagers = 128

// open makes the way to the managers' files short: a file far down costs a system call or two for every directory above.
func (m *managers) open(s *Store) {
	for i := range m.all[:min(len(m.all), maxOpenManagers)] {
		m.all[i].dir, _ = s.roots[m.all[i].root].OpenRoot(m.all[i].path) // nil works too
	}
}

func (m *managers) close() {
	for _, mgr := range m.all {
		if mgr.dir != nil {
			mgr.dir.Close()
		}
	}
}

// lookUp finds a file of a block that has another file in near: where Spark's rule puts it among the local directories that
// are configured now, else where it would be if near were the executor's only one. accept says whether what is there is the
// right one. More than one match is an error.
func (s *Store) lookUp(all *managers, near blockManager, name string, accept func(Member) bool) (Member, error) {
	dir, sub := SparkPlace(name, len(s.roots))
	try := func(m blockManager, p string) (Member, error) {
		f, err := s.memberIn(m, p)
		if err == nil && !accept(f) {
			err = fs.ErrNotExist
		}
		return f, err
	}
	f, err := s.lookIn(all, near, dir, path.Join(sub, name), try)
	if err != nil && len(s.roots) > 1 && !errors.Is(err, errAmbiguous) && !unseen(err) {
		_, sub = SparkPlace(name, 1)
		f, err = try(near, path.Join(sub, name))
	}
	if err != nil && !errors.Is(err, errAmbiguous) && !unseen(err) {
		err = cmp.Or(s.readable(s.Paths[dir]), fs.ErrNotExist)
	}
	return f, err
}

// unseen reports whether a file could not be looked at, which does not mean that it is not there.
func unseen(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrInvalid)
}

// lookIn tries the manager that near's executor has in a local directory; where it is not known which that is, all that are
// there.
func (s *Store) lookIn(all *managers, near blockManager, dir int, p string, try func(m blockManager, p string) (Member, error)) (found Member, err error) {
	if near.root == dir { // an executor has one in each
		return try(near, p)
	}
	if m, known := all.mates[side{near, dir}]; known {
		if f, err := try(m, p); err == nil {
			return f, nil
		}
	}
	matches, missing := 0, error(fs.ErrNotExist)
	for _, m := range all.all {
		if m.root != dir || !m.mayShare(near) {
			continue
		}
		f, err := try(m, p)
		if m.base == near.base { // a landed block's, named alike in all
			return f, err
		}
		if err == nil {
			found = f
			matches++
		} else if unseen(err) {
			missing = err
		}
	}
	switch matches {
	case 0:
		return Member{}, missing
	case 1:
		return found, nil
	default:
		return Member{}, fmt.Errorf("%d block managers have a %s: %w to %s", matches, path.Base(p), errAmbiguous, near.path)
	}
}

// memberIn describes a file in a manager.
func (s *Store) memberIn(m blockManager, p string) (Member, error) {
	if m.dir == nil {
		return s.member(m.root, path.Join(m.path, p), path.Base(p))
	}
	info, err := m.dir.Lstat(p)
	if err != nil {
		return Member{}, err
	}
	return memberOf(m.root, path.Join(m.path, p), path.Base(p), info)
}

// marry remembers that an index in one manager agrees with data in another.
func (m *managers) marry(index blockManager, data Member) {
	for _, other := range m.all {
		if other.root == data.root && other.root != index.root && strings.HasPrefix(data.path, other.path+"/") {
			m.mates[side{index, other.root}] = other
			m.mates[side{other, index.root}] = index
		}
	}
}
