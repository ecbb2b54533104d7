package receiver

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A commit gives files their names before it writes their records, because a record must not tell of files that are not there. A process
// that is killed between the two would leave files that nobody owns: no quota would count them, nobody would remove them, and they would
// stand against every later version of their blocks. So the records are first written into a file beside the staged ones, an intent, and
// the next start writes into the catalog those whose files have their names. Files that are made of segments need none: their records are
// in the catalog before (unpacker).

// intentSuffix tells intents from staged files.
const intentSuffix = ".intent"

// mostIntent bounds an intent that is read. The record of a block has four bytes for each of its chunks (catalog.Placed), 32 KiB for each
// GiB, and a batch is committed once it has gatherBytes.
const mostIntent = 64 << 20

// intent is where records are written before files get their names.
type intent struct {
	store *inventory.Store
	place
}

// intend writes down which blocks of a store a commit is about to name. The intent must be synced before files get names. On a full disk
// it is nil, and files get their names all the same.
func intend(s *inventory.Store, blocks []*landed, at *diskio.Work) *intent {
	var b []byte
	for _, l := range blocks {
		b = fields.AppendString(b, string(catalog.AppendRecord(nil, l.Record)))
		for _, f := range l.files {
			at.Begin(&s.Paths[f.root])
			info, err := s.Roots[f.root].Lstat(f.from)
			if err != nil {
				return nil // publish meets the same, and tells
			}
			b = binary.AppendUvarint(b, inode(info))
		}
	}
	in := &intent{s, place{blocks[0].files[0].root, path.Join(inventory.StagingDir, rand.Text()+intentSuffix)}}
	at.Begin(&s.Paths[in.root])
	if err := s.Roots[in.root].WriteFile(in.path, b, 0o600); err != nil {
		in.remove(at)
		return nil
	}
	return in
}

// remove removes an intent whose records are in the catalog, or whose files have no names any more.
func (in *intent) remove(at *diskio.Work) {
	at.Begin(&in.store.Paths[in.root])
	defer at.End()
	_ = in.store.Roots[in.root].Remove(in.path) // the next start finds what stays
}

func inode(info fs.FileInfo) uint64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st.Ino
}

// finishIntents finishes the commits to a store that a crash cut short. A block whose files all have their names gets its record; another
// block's files lose theirs.
func (c *committer) finishIntents(s *inventory.Store) error {
	var errs []error
	for root, r := range s.Roots {
		entries, err := entriesIn(r, inventory.StagingDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), intentSuffix) {
				continue
			}
			in := place{root, path.Join(inventory.StagingDir, e.Name())}
			if err := c.finishIntent(s, in); err != nil {
				errs = append(errs, fmt.Errorf("finish the commit of %s: %w", path.Join(s.Paths[root], in.path), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *committer) finishIntent(s *inventory.Store, in place) error {
	info, err := s.Roots[in.root].Lstat(in.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostIntent {
		return err
	}
	b, err := s.Roots[in.root].ReadFile(in.path)
	if err != nil {
		return err
	}
	var blocks []*landed
	var dirs []place
	for d := fields.Decode(b); d.Sound(); {
		l := intended(s, in, &d)
		if l == nil {
			continue
		}
		recorded, err := c.recorded(l)
		if err != nil {
			return err
		}
		if recorded {
			continue
		}
		blocks = append(blocks, l)
		for _, f := range l.files {
			if !f.named {
				l.fault = errUnnamed // record takes the other files' names away
			}
			dirs = append(dirs, parents(place{f.root, f.to})...)
		}
	}
	failAll(blocks, syncAll(s, dirs, new(diskio.Work), func(int, time.Duration, error) {}))
	c.record(blocks)
	for _, l := range blocks {
		if !errors.Is(l.fault, errUnnamed) {
			err = errors.Join(err, l.fault)
		}
	}
	return err
}

// errUnnamed says that a crash came before all files of a block had their names.
var errUnnamed = errors.New("not all of its files had their names")

// intended takes the next block off an intent, and finds out which of its files have their names: the files that were staged, and not
// others of those names. It returns nil for a block that was not written to its end: then no file got a name.
func intended(s *inventory.Store, in place, d *fields.Decoder) *landed {
	r, err := catalog.ParseRecord(d.Take())
	if err != nil || inventory.BlockID(r.ID).Store() != s.Name {
		d.Fail()
		return nil
	}
	l := &landed{Record: r, lying: &lying{store: s}}
	for _, p := range r.Placed {
		staged := d.Uvarint()
		if p.Root < 0 || p.Root >= len(s.Roots) {
			continue // the store had more directories then
		}
		f := stagedFile{root: p.Root, from: in.path, to: p.Path} // its staged name is gone, or swept
		if info, err := s.Roots[p.Root].Lstat(p.Path); err == nil {
			f.named = inode(info) == staged && info.ModTime().UnixNano() == p.ModTime
		}
		l.files = append(l.files, f)
	}
	if !d.Sound() {
		return nil
	}
	return l
}

// recorded reports whether the catalog has a block with the same files.
func (c *committer) recorded(l *landed) (bool, error) {
	r, err := c.vault.Catalog.Get(inventory.BlockID(l.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.EqualFunc(r.Placed, l.Placed, func(one, other catalog.Placed) bool {
		return one.SameAs(other) && one.ModTime == other.ModTime
	}), err
}
