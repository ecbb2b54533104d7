package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// blockManager is one blockmgr directory.
type blockManager struct {
	root  int
	path  string
	base  string
	scope string
	app   bool // the scope is an application's id
}

func newBlockManager(root int, p string) blockManager {
	base := path.Base(p)
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		if applicationDir.MatchString(part) {
			return blockManager{root, p, base, part, true}
		}
	}
	return blockManager{root, p, base, base, false}
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
	all   []blockManager
	mates map[side]blockManager
}

// side is what an executor has in another local directory than that of the manager.
type side struct {
	of   blockManager
	root int
}

var errAmbiguous = errors.New("cannot tell which belongs")

// maxManagerDepth is how deep below a store's directory a blockmgr directory is looked for. YARN nests deepest:
// usercache/USER/appcache/APP/blockmgr-UUID.
const maxManagerDepth = 8

func (s *Store) managers(ctx context.Context, fault func(error) bool) (m *managers, ok bool) {
	m = &managers{mates: map[side]blockManager{}}
	for i, root := range s.roots {
		enter := func(dir string) bool {
			base := path.Base(dir)
			if blockManagerDir.MatchString(base) {
				m.all = append(m.all, newBlockManager(i, dir))
				return false
			}
			return base != stagingDir && strings.Count(dir, "/") < maxManagerDepth
		}
		if !walk(ctx, root, ".", enter, func(string, fs.DirEntry) bool { return true }, fault) {
			return nil, false
		}
	}
	return m, true
}

// lookUp finds a file of a block another file of which is in near: where Spark's rule puts it among the local directories
// that are configured now, else where it would be had the executor had near alone. accept says whether what is there is
// the right one. More than one match is an error.
func (s *Store) lookUp(all *managers, near blockManager, name string, accept func(Member) bool) (Member, error) {
	dir, sub := SparkPlace(name, len(s.roots))
	m, err := s.mate(all, near, dir, path.Join(sub, name), accept)
	if err != nil {
		return Member{}, err
	}
	if f, err := s.member(m.root, path.Join(m.path, sub, name), name); err == nil && accept(f) {
		return f, nil
	}
	_, sub = SparkPlace(name, 1)
	if f, err := s.member(near.root, path.Join(near.path, sub, name), name); err == nil && accept(f) {
		return f, nil
	}
	return Member{}, fs.ErrNotExist
}

// mate is the manager in a local directory that belongs to the same executor as near, or else the only one there that
// has an acceptable file of that path; near itself if none has.
func (s *Store) mate(all *managers, near blockManager, dir int, p string, accept func(Member) bool) (blockManager, error) {
	if near.root == dir { // an executor has one in each
		return near, nil
	}
	has := func(m blockManager) bool {
		f, err := s.member(m.root, path.Join(m.path, p), path.Base(p))
		return err == nil && accept(f)
	}
	if m, known := all.mates[side{near, dir}]; known && has(m) {
		return m, nil
	}
	var found []blockManager
	for _, m := range all.all {
		if m.root != dir || !m.mayShare(near) {
			continue
		}
		if m.base == near.base { // a landed block's, named alike in all
			return m, nil
		}
		if has(m) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return near, nil
	case 1:
		return found[0], nil
	default:
		return blockManager{}, fmt.Errorf("%d block managers have a %s: %w to %s", len(found), path.Base(p), errAmbiguous, near.path)
	}
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
