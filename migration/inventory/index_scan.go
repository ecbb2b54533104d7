package inventory

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// IndexScan is a first look through a part of a store that goes by an index.
type IndexScan struct {
	store  *Store
	part   int
	Began  time.Time // when the look that made the index began
	Past   Past      // of the drain, which makes its first look
	dirs   *recordsReader
	blocks *recordsReader
	log    *slog.Logger

	walk   *walk
	member [1]Member // of the block that was yielded last, until the next
}

// Close closes the index's files. A nil IndexScan has none.
func (x *IndexScan) Close() {
	if x != nil {
		x.dirs.close()
		x.blocks.close()
	}
}

// Scan yields what a first look without an index would: for directories with the same names what the index has, for the
// others what is in them now.
func (x *IndexScan) Scan(ctx context.Context, yield func(Item, error) bool) (more bool) {
	if err := x.store.Readable(x.store.Paths[x.part]); err != nil {
		return yield(Item{}, err)
	}
	x.walk = FilesLayout{}.walk(x.store, x.part, yield)
	x.walk.past = x.Past
	for ctx.Err() == nil {
		record, err := x.dirs.next()
		if err == io.EOF {
			return true
		}
		var was wasDir
		if err == nil {
			was, err = parseWasDir(record)
		}
		if err == nil {
			more, err = x.dir(ctx, was, yield)
		}
		if err != nil { // of records that were read through a moment before; what was yielded comes once more
			x.log.Warn("an index cannot be read any more: the store is looked through", "dir", x.store.Paths[x.part], "err", err)
			return x.store.Shape.Scan(ctx, x.store, x.part, x.Past, yield)
		}
		if !more {
			return false
		}
	}
	return false
}

// dir yields what is in one directory, and what is below the directories in it that are new.
func (x *IndexScan) dir(ctx context.Context, was wasDir, yield func(Item, error) bool) (more bool, err error) {
	var dirs []string
	fd, gone, err := x.store.openDir(x.part, was.path)
	switch {
	case gone:
		return true, x.skip(was.blocks)
	case err != nil: // the walk goes there by itself, and returns what is wrong
		dirs, more = x.walk.one(ctx, was.path, false)
		err = x.skip(was.blocks)
	default:
		defer unix.Close(fd)
		id, unknown := dirIDOf(fd)
		at := site{x.walk.root.Name(), was.path, id.dev, id.ino}
		if unknown == nil && id == was.id && id.settled(x.Began) {
			x.Past.Places.add(at, x.Began, false)
			return x.asItWas(fd, was, yield)
		}
		dirs, more, err = x.asItIs(ctx, fd, was, yield)
		if unknown == nil && more && err == nil && !x.walk.failed {
			x.Past.Places.add(at, x.Began, false)
		}
	}
	slices.Sort(was.dirs)
	for _, d := range dirs {
		if _, known := slices.BinarySearch(was.dirs, d); more && err == nil && !known {
			more = x.walk.below(ctx, d)
		}
	}
	return more, err
}

// asItWas yields what the index has of a directory.
func (x *IndexScan) asItWas(fd int, was wasDir, yield func(Item, error) bool) (more bool, err error) {
	for range was.blocks {
		old, err := x.next()
		if err != nil {
			return false, err
		}
		b := x.block(was.path, old.name, old)
		if _, hidden := x.store.earlier(x.part, b.Members[0].Path); hidden {
			more = x.walk.again(fd, was.path, string(old.name))
		} else {
			more = yield(Item{Block: b}, nil)
		}
		if !more {
			return false, nil
		}
	}
	for _, name := range was.others {
		if !x.walk.again(fd, was.path, name) {
			return false, nil
		}
	}
	return true, nil
}

// asItIs yields what is in a directory where a name came or went. It does not look at files that still have their name and
// inode, unless the directory has a file of values, or had one. It returns the directories in it.
func (x *IndexScan) asItIs(ctx context.Context, fd int, was wasDir, yield func(Item, error) bool) (dirs []string, more bool, err error) {
	in := ahead{unread: was.blocks, next: x.next}
	valued := slices.Contains(was.others, ValuesFile) || statAt(fd, []byte(ValuesFile+"\x00"), &unix.Stat_t{}) != unix.ENOENT
	x.walk.known = func(dir string, e dirent) (met, more bool) {
		old, ok := wasBlock{}, false
		if !valued {
			old, ok, err = in.find(e.name)
		}
		if err != nil || !ok || old.ino != e.ino {
			return false, err == nil
		}
		b := x.block(dir, e.name, old)
		if _, hidden := x.store.earlier(x.part, b.Members[0].Path); hidden {
			return false, true
		}
		return true, yield(Item{Block: b}, nil)
	}
	dirs, more = x.walk.list(ctx, fd, was.path)
	x.walk.known = nil
	return dirs, more, errors.Join(err, x.skip(in.unread))
}

// block returns the block that a walk would yield for a file.
func (x *IndexScan) block(dir string, name []byte, was wasBlock) Block {
	x.walk.call(dir, name)
	f := &x.walk.seen
	b := x.store.block(BlockID(f.id), x.member[:]...)
	b.Members[0] = Member{Name: f.path, Bytes: was.bytes, ModTime: time.Unix(0, was.mtim), Root: x.part, Path: f.path, ChangeTime: was.ctim}
	b.Value = was.value
	return b
}

// next reads the next block of the index.
func (x *IndexScan) next() (was wasBlock, err error) {
	record, err := x.blocks.next()
	if err != nil {
		return was, noEnd(err)
	}
	return parseWasBlock(record)
}

func (x *IndexScan) skip(blocks int) error {
	for range blocks {
		if _, err := x.blocks.next(); err != nil {
			return noEnd(err)
		}
	}
	return nil
}
