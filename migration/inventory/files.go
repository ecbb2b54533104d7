package inventory

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// FilesLayout makes every regular file a block. Its scope is "-", its name the path below the store's directory. A
// store's directories are one name space: the first directory that has a name wins.
type FilesLayout struct{}

const noScope = "-"

// temporarySuffixes are the marks that programs put on files that are not finished. Carrying one would hand a reader half a file
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

func (FilesLayout) Parts(s *Store) int { return len(s.Roots) }

func (l FilesLayout) Scan(ctx context.Context, s *Store, i int, before Past, yield func(Item, error) bool) bool {
	if err := s.Readable(s.Paths[i]); err != nil {
		return yield(Item{}, err)
	}
	if before.Since.IsZero() {
		w := l.walk(s, i, yield)
		w.past = before
		return w.below(ctx, ".")
	}
	yield = oneByOne(yield)
	return spread(ctx, func() *walk {
		w := l.walk(s, i, yield)
		w.since, w.past = before.Since.UnixNano(), before
		w.passed = func() bool { return yield(Item{}, nil) }
		w.stirred = func(dir string) bool { return yield(Item{Stirred: dir}, nil) }
		return w
	})
}

func (FilesLayout) walk(s *Store, i int, yield func(Item, error) bool) *walk {
	enter := func(dir string) bool { return path.Base(dir) != StagingDir }
	var said values
	var members Roster
	w := &walk{root: s.Roots[i], prefix: s.Name + "/" + noScope + "/", enter: enter}
	w.fault = func(err error) bool { return yield(Item{}, err) }
	w.visit = func(f *seen) bool {
		if err := said.in(s.Roots[i], f.dir); err != nil && !yield(Item{}, err) {
			return false
		}
		switch {
		case f.name == ValuesFile:
			return true
		case !f.regular:
			return yield(s.skip(i, noScope, f.path, "not a regular file", 0), nil)
		case temporaryName(f.name):
			return yield(s.skip(i, noScope, f.path, "temporary file", f.bytes()), nil)
		}
		id, unnamed := ParseBlockID(f.id)
		if unnamed != nil {
			id = s.nonID(noScope, f.path)
		}
		m, err := f.member(i, id.Name())
		if err != nil {
			return yield(Item{Block: s.block(id, Member{Name: id.Name(), Root: i})}, err)
		}
		if first, ok := s.earlier(i, f.path); ok {
			return yield(s.skip(i, noScope, f.path, "the same name is in "+first+", which comes first", m.Bytes), nil)
		}
		b := s.block(id, members.Of(1)...)
		b.Members[0] = m
		if unnamed != nil {
			return yield(Item{Block: b, Stays: remedyFor(unnamed), Anew: w.anew}, nil)
		}
		b.Value = said.of[f.name]
		return yield(Item{Block: b, Anew: w.anew}, nil)
	}
	return w
}

// earlier returns the first directory before root that has a file of that name. A file on a disk that does not answer
// hides nothing: it cannot be carried, and the next is the best copy that there is.
func (s *Store) earlier(root int, p string) (dir string, ok bool) {
	for i := range root {
		if s.Readable(s.Paths[i]) != nil || s.certainlyLacks(i, p) {
			continue
		}
		if info, err := s.Roots[i].Lstat(p); err == nil && info.Mode().IsRegular() {
			return s.Paths[i], true
		}
	}
	return "", false
}

// certainlyLacks reports in one call that a directory has nothing of that name. It is asked about every file, for each directory before
// its own, and mostly reports true. An os.Root would open all directories on the way, which takes ten times as long (measured).
func (s *Store) certainlyLacks(root int, p string) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	fd, err := diskio.Retry(func() (int, error) { return unix.Openat2(int(s.DirFiles[root].Fd()), p, &how) })
	if err == nil {
		unix.Close(fd)
	}
	return err == unix.ENOENT || err == unix.ENOTDIR
}

func (FilesLayout) Find(s *Store, id BlockID, at func(dir *string)) (Block, error) {
	if base := path.Base(id.Name()); id.Scope() == noScope && base != ValuesFile && !temporaryName(base) {
		for i := range s.Roots {
			if s.Readable(s.Paths[i]) != nil {
				continue
			}
			at(&s.Paths[i])
			m, err := s.Member(i, id.Name(), id.Name())
			switch {
			case err == nil:
				return s.block(id, m), nil
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, fs.ErrInvalid): // a file has the name of a directory on the way, or a directory or a link has the block's
			default:
				return Block{}, err
			}
		}
		return Block{}, cmp.Or(s.whole(), fs.ErrNotExist)
	}
	return Block{}, fs.ErrNotExist
}

// Place keeps the path. The name's hash chooses the directory, which is as good a choice as any.
func (FilesLayout) Place(s *Store, id BlockID, member string) (int, string) {
	root, _ := SparkPlace(member, len(s.Roots))
	return root, member
}

func (FilesLayout) Anywhere() bool { return true }

func (FilesLayout) Made(BlockID) string { return "" }

func (FilesLayout) Last(string) bool { return false }
