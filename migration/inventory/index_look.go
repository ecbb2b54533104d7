package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// openDir opens a directory of a store without following links. gone: it is not there any more.
func (s *Store) openDir(root int, dir string) (fd int, gone bool, err error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	at := int(s.DirFiles[root].Fd())
	fd, err = diskio.Retry(func() (int, error) { return unix.Openat2(at, dir, &how) })
	if err == unix.ENOSYS || err == unix.EPERM { // before Linux 5.6, or a container's seccomp filter does not know the call
		fd, err = openSteps(at, dir)
	}
	switch err {
	case nil:
		return fd, false, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return -1, true, nil
	}
	return -1, false, &fs.PathError{Op: "open", Path: dir, Err: err}
}

// openSteps opens a directory below another, one name after the other, without following links.
func openSteps(at int, dir string) (fd int, err error) {
	fd = at
	for name := range strings.SplitSeq(dir, "/") {
		from := fd
		if name == ".." {
			err = unix.EXDEV
		} else {
			fd, err = diskio.Retry(func() (int, error) {
				return unix.Openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			})
		}
		if from != at {
			unix.Close(from)
		}
		if err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// partIndex is an index of a part of a store.
type partIndex struct {
	began   time.Time // when the look that made it began
	checked time.Time // when it was last found to be true
	drift   time.Duration
	dirs    recordFile
	blocks  recordFile
	holds   Count
	largest int64 // bytes of a block
	strange
}

// strange counts files whose names make no id.
type strange struct {
	files   int64
	example string
}

// remove removes the index's files. Readers have them open.
func (p *partIndex) remove() {
	for _, path := range []string{p.dirs.path, p.blocks.path} {
		_ = os.Remove(path) // what stays is removed at the next start
	}
}

// indexer makes a partIndex.
type indexer struct {
	s            *Store
	part         int
	walk         *walk
	dirs, blocks *recordsWriter
	rest         func() (more bool)

	in     wasDir // the directory that it is looking through
	now    *seen
	failed bool // it could not look through all of that directory
	holds  Count
	most   int64 // bytes of a block
	strange
	word []byte
}

// look makes an index of a part of a store, in files of that name. It calls rest again and again, and ends when rest
// returns false.
func (s *Store) look(ctx context.Context, part int, name string, rest func() bool) (_ *partIndex, err error) {
	p := &partIndex{began: time.Now()}
	if err := s.Readable(s.Paths[part]); err != nil {
		return nil, err
	}
	x := &indexer{s: s, part: part, rest: rest}
	if x.dirs, err = createRecords(name + ".dirs"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	p.dirs.path, p.blocks.path = name+".dirs", name+".blocks"
	if x.blocks, err = createRecords(name + ".blocks"); err != nil {
		_, closing := x.dirs.close()
		return nil, errors.Join(err, closing)
	}
	x.walk = FilesLayout{}.walk(s, part, x.note)
	visit := x.walk.visit
	x.walk.visit = func(f *seen) bool {
		if x.now = f; f.name == ValuesFile {
			x.in.others = append(x.in.others, f.name)
		}
		return visit(f)
	}
	x.walk.fault = func(error) bool { x.failed = true; return true }
	whole, err := x.below(ctx, ".")
	if err == nil && !whole {
		err = errPutOff
	}
	var ends [2]error
	p.dirs, ends[0] = x.dirs.close()
	p.blocks, ends[1] = x.blocks.close()
	p.holds, p.largest, p.strange, p.checked = x.holds, x.most, x.strange, time.Now()
	return p, errors.Join(append(ends[:], err)...)
}

// errPutOff says that nothing is wrong, but something else has to be done first.
var errPutOff = errors.New("put off")

// below indexes a directory and all below it. It returns false when it was told to stop.
func (x *indexer) below(ctx context.Context, dir string) (more bool, err error) {
	x.in, x.failed = wasDir{path: dir}, false
	fd, gone, err := x.s.openDir(x.part, dir)
	if err != nil && dir == "." {
		return false, err // none of it can be indexed
	}
	if gone || err != nil { // the index has the directory as unknown, and a drain looks for it again
		x.word = x.in.append(x.word[:0])
		x.dirs.put(x.word)
		return x.rest(), nil
	}
	id, err := dirIDOf(fd)
	more = true
	if err == nil {
		x.in.dirs, more = x.walk.list(ctx, fd, dir)
	}
	unix.Close(fd)
	if err == nil && !x.failed && len(x.in.others) <= mostOthers {
		x.in.id = id
	} else {
		x.in.others = nil
	}
	x.word = x.in.append(x.word[:0])
	x.dirs.put(x.word)
	for _, d := range x.in.dirs {
		if more = more && x.rest(); !more {
			break
		}
		if more, err = x.below(ctx, d); err != nil {
			return false, err
		}
	}
	return more, errors.Join(x.dirs.err, x.blocks.err)
}

// note adds to the index what the layout makes of a name.
func (x *indexer) note(it Item, err error) bool {
	switch {
	case err != nil && it.ID == "": // about the directory's values: each look that reads them returns it
		x.failed = true
	case err != nil || !it.Carried():
		if it.Stays != "" {
			x.strange.files++
			x.example = cmp.Or(x.example, string(it.ID))
		}
		if len(x.in.others) <= mostOthers {
			x.in.others = append(x.in.others, x.now.name)
		}
	default:
		x.in.blocks++
		x.holds, x.most = x.holds.Plus(Count{Blocks: 1, Bytes: it.Bytes()}), max(x.most, it.Bytes())
		x.word = appendWasBlock(x.word[:0], x.now.name, x.now.stat.Ino, it.Block)
		x.blocks.put(x.word)
	}
	return x.rest() && x.blocks.err == nil
}

// stands reports whether all directories have the names that they had.
func (p *partIndex) stands(s *Store, part int, rest func() bool) (stands bool, err error) {
	r, err := p.dirs.open()
	if err != nil {
		return false, err
	}
	defer r.close()
	for {
		record, err := r.next()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		was, err := parseWasDir(record)
		if err != nil {
			return false, err
		}
		if was.id == (dirID{}) {
			continue // an unknown directory says nothing either way
		}
		if as, _ := s.is(part, was, p.began); !as {
			return false, nil
		}
		if !rest() {
			return false, errPutOff
		}
	}
}

// is reports whether a directory has the names that it had.
func (s *Store) is(part int, was wasDir, began time.Time) (as bool, err error) {
	fd, gone, err := s.openDir(part, was.path)
	if gone || err != nil {
		return false, err
	}
	defer unix.Close(fd)
	id, err := dirIDOf(fd)
	return id == was.id && id.settled(began), err
}

func indexName(dir string, n, generation int) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d", n, generation))
}
