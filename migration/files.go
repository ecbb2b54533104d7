package migration

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// filesLayout: every regular file is a block, its scope is "-", its name the path below the store's directory. Where a
// store has several directories they are one name space, and the first that has a name wins.
type filesLayout struct{}

const noScope = "-"

// temporary are the marks that programs put on files that are not finished. Carrying one would hand a reader half a file
// under a name that its owner will soon give to the whole.
var temporarySuffixes = []string{".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~"}

func temporaryName(base string) bool {
	for _, s := range temporarySuffixes {
		if strings.HasSuffix(base, s) {
			return true
		}
	}
	return strings.HasPrefix(base, ".tmp") || strings.HasPrefix(base, ".nfs")
}

func (filesLayout) parts(s *Store) int { return len(s.roots) }

func (filesLayout) scan(ctx context.Context, s *Store, i int, yield func(Item, error) bool) bool {
	if err := s.readable(s.Paths[i]); err != nil {
		return yield(Item{}, err)
	}
	enter := func(dir string) bool { return path.Base(dir) != stagingDir }
	var said values
	visit := func(p string, e fs.DirEntry) bool {
		if err := said.in(s.roots[i], path.Dir(p)); err != nil && !yield(Item{}, err) {
			return false
		}
		switch {
		case path.Base(p) == ValuesFile:
			return true
		case e.Type() != 0:
			return yield(s.skip(i, noScope, p, "not a regular file", 0), nil)
		case temporaryName(path.Base(p)):
			return yield(s.skip(i, noScope, p, "temporary file", size(e)), nil)
		}
		id, err := s.id(noScope, p)
		if err != nil {
			return yield(s.skip(i, noScope, p, "its name cannot be carried: "+err.Error(), size(e)), nil)
		}
		info, err := e.Info()
		if err != nil {
			return errors.Is(err, fs.ErrNotExist) || yield(Item{Block: s.block(id, Member{Name: id.Name(), root: i})}, err)
		}
		m, err := memberOf(i, p, id.Name(), info)
		if err != nil {
			return yield(s.skip(i, noScope, p, "not a regular file", 0), nil)
		}
		if first, ok := s.earlier(i, p); ok {
			return yield(s.skip(i, noScope, p, "the same name is in "+first+", which comes first", m.Bytes), nil)
		}
		b := s.block(id, m)
		b.value = said.of[path.Base(p)]
		return yield(Item{Block: b}, nil)
	}
	fault := func(err error) bool { return yield(Item{}, err) }
	return walk(ctx, s.roots[i], ".", enter, visit, fault)
}

// earlier returns the directory before that one that has a file of that name. What lies on a disk that does not answer
// hides nothing: it cannot be carried, and the next is the best that there is.
func (s *Store) earlier(root int, p string) (dir string, ok bool) {
	for i := range root {
		if s.readable(s.Paths[i]) != nil {
			continue
		}
		if _, err := s.roots[i].Lstat(p); err == nil {
			return s.Paths[i], true
		}
	}
	return "", false
}

func (filesLayout) find(s *Store, id BlockID) (Block, error) {
	if id.Scope() == noScope && path.Base(id.Name()) != ValuesFile {
		for i := range s.roots {
			if s.readable(s.Paths[i]) != nil {
				continue
			}
			m, err := s.member(i, id.Name(), id.Name())
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return Block{}, err
			}
			return s.block(id, m), nil
		}
		return Block{}, cmp.Or(s.whole(), fs.ErrNotExist)
	}
	return Block{}, fs.ErrNotExist
}

// place keeps the path. The directory by the name's hash is as good as any other.
func (filesLayout) place(s *Store, id BlockID, member string) (int, string) {
	root, _ := SparkPlace(member, len(s.roots))
	return root, member
}

func (filesLayout) anywhere() bool { return true }

func (filesLayout) last(string) bool { return false }
