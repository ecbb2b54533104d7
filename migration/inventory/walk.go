package inventory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// seen is an entry that a walk met in a directory and that is not itself a directory.
type seen struct {
	dir, name string // below the store's directory: path is dir/name
	path      string
	id        string // the walk's prefix and the path
	regular   bool
	stat      unix.Stat_t // of a regular file
	err       error       // the file could not be looked at
}

// member describes the file.
func (f *seen) member(root int, name string) (Member, error) {
	switch {
	case f.err != nil:
		return Member{}, f.err
	case !f.regular:
		return Member{}, notRegular(f.path)
	}
	return Member{Name: name, Bytes: f.stat.Size, ModTime: time.Unix(f.stat.Mtim.Unix()), Root: root, Path: f.path, ChangeTime: f.stat.Ctim.Nano()}, nil
}

// bytes returns the size for the account of skipped files: 0 if the file could not be looked at.
func (f *seen) bytes() int64 { return f.stat.Size }

// walk looks through the directories below one of a store's. It reads a directory piecemeal, in the file system's own
// order, and keeps one open at a time: a flat directory of a million files costs no more memory than the buffer. It looks
// at each entry by its name in the open directory and follows no link, so no link leads out of the store. A block of a
// few KiB costs mostly system calls; this makes one where an os.File makes two, and five allocations.
type walk struct {
	root  *os.Root
	enter func(dir string) bool   // false leaves a directory out
	visit func(*seen) (more bool) // its argument is valid until the next call
	fault func(error) (more bool)
	known func(dir string, e dirent) (met, more bool) // of a regular file: true, and it need not be looked at; nil: none is known

	prefix string             // of the ids in seen
	since  int64              // regular files that did not change since are passed by; Unix nanoseconds, 0: none is
	past   Past               // what is known of earlier looks: in directories that they did not go through no file is passed by
	passed func() (more bool) // called now and then if since is set, for nothing may be visited for long
	// stirred is called for directories where a name came or went since, with the walk's prefix and their path. Nil: it is
	// not.
	stirred func(dir string) (more bool)

	buf    []byte
	word   []byte
	seen   seen
	anew   bool // in this directory no file is passed by: no earlier look went through it where it is now
	failed bool // the directory was not read to its end
}

// walkBuffer holds a few hundred entries; os.File reads a quarter of that at once.
const walkBuffer = 32 << 10

// below looks through a directory. Entries that vanish while it looks are passed by. It returns false when it was told to
// stop or ctx has ended.
func (w *walk) below(ctx context.Context, dir string) bool {
	dirs, ok := w.one(ctx, dir, false)
	for _, d := range dirs {
		ok = ok && w.below(ctx, d)
	}
	return ok
}

// one looks through a directory, and returns the directories in it without looking through them. moved says that the directory
// above may have been moved to where it is.
func (w *walk) one(ctx context.Context, dir string, moved bool) (dirs []string, more bool) {
	f, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || w.fail(dir, err)
	}
	defer f.Close()
	fd := int(f.Fd())
	id, err := dirIDOf(fd)
	if err != nil {
		return nil, w.fail(dir, err)
	}
	changed, at := changedBy(id.ctim) >= w.since, site{w.root.Name(), dir, id.dev, id.ino}
	w.anew = w.since != 0 && w.past.Places.lacks(at, w.past.Last, moved || changed)
	if w.stirred != nil && changed && !w.stirred(path.Join(w.prefix, dir)) {
		return nil, false
	}
	dirs, more = w.list(ctx, fd, dir)
	if more && !w.failed {
		w.past.Places.add(at, w.past.Began, w.anew)
	}
	return dirs, more
}

func (w *walk) fail(dir string, err error) (more bool) {
	w.failed = true
	return w.fault(&UnlistedError{Root: w.root.Name(), Dir: dir, Err: err})
}

// list does the work of one in a directory that is open.
func (w *walk) list(ctx context.Context, fd int, dir string) (dirs []string, more bool) {
	if w.buf == nil {
		w.buf = make([]byte, walkBuffer)
	}
	w.failed = false
	for ctx.Err() == nil {
		n, err := diskio.Retry(func() (int, error) { return unix.ReadDirent(fd, w.buf) })
		if err != nil && err != unix.ENOENT { // ENOENT is how a removed directory ends
			return dirs, w.fail(dir, err)
		}
		if n <= 0 {
			return dirs, true
		}
		if w.since != 0 && !w.passed() {
			return nil, false
		}
		for entries := w.buf[:n]; len(entries) > 0; {
			var e dirent
			e, entries = nextDirent(entries)
			if string(e.name) == "." || string(e.name) == ".." {
				continue
			}
			if w.known != nil && e.kind == unix.DT_REG {
				met, more := w.known(dir, e)
				if !more {
					return nil, false
				}
				if met {
					continue
				}
			}
			switch kind := w.look(fd, dir, e); {
			case kind == unix.S_IFDIR:
				if w.enter(w.seen.path) {
					dirs = append(dirs, w.seen.path)
				}
			case kind != 0 && !w.visit(&w.seen):
				return nil, false
			}
		}
	}
	return nil, false
}

// again looks at one name in a directory that is open.
func (w *walk) again(fd int, dir, name string) (more bool) {
	ended := append([]byte(name), 0)
	kind := w.look(fd, dir, dirent{name: ended[:len(name)], ended: ended})
	return kind == 0 || kind == unix.S_IFDIR || w.visit(&w.seen)
}

// look finds out what an entry is, and stats it if it is a regular file. 0: the entry has vanished, or is passed by. It
// decides that before it makes strings of the name, for when a drain looks again nearly every file is passed by.
func (w *walk) look(fd int, dir string, e dirent) (kind uint32) {
	w.seen = seen{dir: dir}
	kind = uint32(e.kind) << 12 // as in IFTODT of <dirent.h>
	if kind == 0 || kind == unix.S_IFREG {
		st := &w.seen.stat
		switch err := statAt(fd, e.ended, st); {
		case err == unix.ENOENT:
			return 0
		case err != nil:
			w.call(dir, e.name)
			w.seen.regular, w.seen.err = true, &fs.PathError{Op: "stat", Path: w.seen.path, Err: err}
			return unix.S_IFREG
		}
		kind = st.Mode & unix.S_IFMT
		w.seen.regular = kind == unix.S_IFREG
		if w.seen.regular && changedBy(st.Ctim.Nano()) < w.since && !w.anew {
			return 0
		}
	}
	w.call(dir, e.name)
	return kind
}

// call sets the names of seen, all of them parts of one string.
func (w *walk) call(dir string, entry []byte) {
	w.word = append(w.word[:0], w.prefix...)
	if dir != "." {
		w.word = append(append(w.word, dir...), '/')
	}
	w.word = append(w.word, entry...)
	id := string(w.word)
	w.seen.id, w.seen.path, w.seen.name = id, id[len(w.prefix):], id[len(id)-len(entry):]
}

// dirent is an entry of a directory as the kernel returns it: linux_dirent64 of getdents(2).
type dirent struct {
	ino   uint64
	kind  byte // DT_REG and the like; 0: the file system does not say
	name  []byte
	ended []byte // the name and the NUL behind it, as the kernel takes it
}

func nextDirent(p []byte) (e dirent, rest []byte) {
	const length, kind, name = 16, 18, 19 // where these begin: after the inode's number and an offset of 8 bytes each
	n := int(binary.NativeEndian.Uint16(p[length:]))
	end := name + bytes.IndexByte(p[name:n], 0)
	return dirent{binary.NativeEndian.Uint64(p), p[kind], p[name:end], p[name : end+1]}, p[n:]
}
