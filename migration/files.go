package migration

import (
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

func (filesLayout) scan(ctx context.Context, s *Store, yield func(Item, error) bool) {
	for i, root := range s.roots {
		enter := func(dir string) bool { return path.Base(dir) != stagingDir }
		visit := func(p string, e fs.DirEntry) bool {
			switch {
			case e.Type() != 0:
				return yield(s.skip(noScope, p, "not a regular file", 0), nil)
			case temporaryName(path.Base(p)):
				return yield(s.skip(noScope, p, "temporary file", size(e)), nil)
			}
			id, err := s.id(noScope, p)
			if err != nil {
				return yield(s.skip(noScope, p, "its name cannot be carried: "+err.Error(), size(e)), nil)
			}
			info, err := e.Info()
			if err != nil {
				return errors.Is(err, fs.ErrNotExist) || yield(Item{Block: s.block(id)}, err)
			}
			m, err := memberOf(i, p, id.Name(), info)
			if err != nil {
				return yield(s.skip(noScope, p, "not a regular file", 0), nil)
			}
			for earlier := range i {
				if _, err := s.roots[earlier].Lstat(p); err == nil {
					return yield(s.skip(noScope, p, "the same name is in "+s.Paths[earlier]+", which comes first", m.Bytes), nil)
				}
			}
			return yield(Item{Block: s.block(id, m)}, nil)
		}
		fault := func(err error) bool { return yield(Item{}, err) }
		if !walk(ctx, root, ".", enter, visit, fault) {
			return
		}
	}
}

func (filesLayout) find(s *Store, id BlockID) (Block, error) {
	if id.Scope() == noScope {
		for i := range s.roots {
			m, err := s.member(i, id.Name(), id.Name())
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return Block{}, err
			}
			return s.block(id, m), nil
		}
	}
	return Block{}, fs.ErrNotExist
}

// place keeps the path and takes the directory by the name's hash, so that a block that comes twice comes to one place.
func (filesLayout) place(s *Store, id BlockID, member string) (int, string) {
	root, _ := SparkPlace(member, len(s.roots))
	return root, member
}

func (filesLayout) base(id BlockID) BlockID { return id }

func (filesLayout) last(string) bool { return false }
