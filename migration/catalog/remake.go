package catalog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A damaged catalog is set aside, and made anew from the segments: an agent that does not start serves nothing. Facts that
// only the catalog has are lost with it. Blocks in place are from then on their store's own, as if its engine had written
// them.

// bucketSalvage has the directories whose segments are yet to be read into a catalog that was made anew: as allSegments, or as the numbers of
// those that their disk did not give. A disk that is away is read when it is back.
var bucketSalvage = []byte("salvage")

var allSegments = []byte{1}

// Ruin is why a catalog was made anew, and where the old one was put; "": there was no file to put aside.
type Ruin struct {
	Why   error
	Aside string
}

const catalogName = "catalog.db"

// Open opens the catalog in dir. If it is damaged, or missing although there are segments, Open makes a new one, which
// is to read the segments in dirs. anySegments is called only if there is no catalog.
func Open(dir string, dirs []string, anySegments func() bool) (*Catalog, *Ruin, error) {
	p := filepath.Join(dir, catalogName)
	why := noCatalog(p, anySegments)
	if why == nil {
		c, err := open(dir)
		if err == nil {
			err = c.verify()
			if err == nil {
				c, err = c.compacted(diskio.OpenPatience, durable.SyncDir)
				return c, nil, err
			}
			err = errors.Join(err, c.giveUp(err))
		}
		if !ruined(p, err) {
			return nil, nil, err
		}
		why = err
	}
	aside, err := setAside(p)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; it cannot be set aside: %w", why, err)
	}
	c, err := createCatalog(dir, dirs)
	return c, &Ruin{why, aside}, err
}

// noCatalog returns an error if the catalog is missing or empty although there are segments, or although an earlier one
// was set aside.
func noCatalog(p string, anySegments func() bool) error {
	if info, err := os.Lstat(p); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before, _ := filepath.Glob(p + ".damaged-*")
	if len(before) == 0 && !anySegments() {
		return nil
	}
	return fmt.Errorf("%s is gone or empty, and there are segments: %w", p, wire.ErrCorrupt)
}

// ruined reports whether the catalog's own bytes keep it from being opened, and not its disk, another agent or missing
// rights.
func ruined(p string, err error) bool {
	if errors.Is(err, wire.ErrCorrupt) {
		return true
	}
	for _, is := range []error{bbolterrors.ErrInvalid, bbolterrors.ErrVersionMismatch, bbolterrors.ErrChecksum, bbolterrors.ErrIncompatibleValue, bbolterrors.ErrBucketNotFound} {
		if errors.Is(err, is) {
			return true
		}
	}
	info, statErr := os.Lstat(p)
	return statErr == nil && (info.IsDir() || info.Size() < 4*int64(os.Getpagesize()))
}

// setAside renames the catalog, and removes all but the last of those that were set aside before.
func setAside(p string) (aside string, err error) {
	if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	before, _ := filepath.Glob(p + ".damaged-*")
	for _, old := range before[:max(0, len(before)-1)] {
		_ = os.RemoveAll(old)
	}
	aside = p + ".damaged-" + time.Now().UTC().Format("20060102T150405.000Z")
	return aside, errors.Join(os.Rename(p, aside), durable.SyncDir(filepath.Dir(p)))
}

// createCatalog makes a catalog that is yet to read the segments in dirs. The file gets its name once it says so.
func createCatalog(dir string, dirs []string) (*Catalog, error) {
	fresh := filepath.Join(dir, draftName)
	if err := os.RemoveAll(fresh); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(fresh, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketSalvage)
		for _, d := range dirs {
			err = cmp.Or(err, b.Put([]byte(d), allSegments))
		}
		return err
	})
	err = errors.Join(err, db.Close())
	if err == nil {
		err = errors.Join(os.Rename(fresh, filepath.Join(dir, catalogName)), durable.SyncDir(dir))
	}
	if err != nil {
		return nil, err
	}
	return open(dir)
}

// verify reads the catalog through, looks each id up, and counts: pages have no checksums of their own. It costs a look-up
// a block. A record that cannot be read is only that block's trouble.
func (c *Catalog) verify() error {
	var all, sound int64
	err := c.view(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketBlocks, bucketSegments, bucketWeights, bucketFree, bucketHoles} {
			b := tx.Bucket(name)
			if b == nil {
				return fmt.Errorf("%s has no bucket %q: %w", c.db.Path(), name, wire.ErrCorrupt)
			}
			var last []byte
			look := b.Cursor()
			err := b.ForEach(func(k, v []byte) error {
				if last != nil && slices.Compare(last, k) >= 0 {
					return fmt.Errorf("%s: keys out of order in %q: %w", c.db.Path(), name, wire.ErrCorrupt)
				}
				last = append(last[:0], k...)
				if found, _ := look.Seek(last); string(found) != string(last) {
					return fmt.Errorf("%s: a key of %q cannot be found: %w", c.db.Path(), name, wire.ErrCorrupt)
				}
				if string(name) == string(bucketBlocks) {
					if all++; all%recordsOnAPage == 0 {
						c.pages.looked(tx, 1)
					}
					if soundRecord(v) {
						sound++
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if n := c.Count().Blocks; err == nil && (n < sound || n > all) {
		err = fmt.Errorf("%s has %d blocks, and says that it has %d: %w", c.db.Path(), all, n, wire.ErrCorrupt)
	}
	return err
}

// Salvage notes that all of a directory's segments are to be read.
func (c *Catalog) Salvage(dir string) error {
	return c.write(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketSalvage)
		if err != nil {
			return err
		}
		return b.Put([]byte(dir), allSegments)
	})
}

// IsSalvaged notes that a directory's segments have been read, except those that their disk did not give.
func (c *Catalog) IsSalvaged(dir string, unread []uint32) error {
	return c.write(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketSalvage)
		if len(unread) == 0 {
			return b.Delete([]byte(dir))
		}
		var numbers []byte
		for _, no := range unread {
			numbers = binary.BigEndian.AppendUint32(numbers, no)
		}
		return b.Put([]byte(dir), numbers)
	})
}

// ToSalvage returns which of a directory's segments are yet to be read: all, or only some.
func (c *Catalog) ToSalvage(dir string) (all bool, some []uint32, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketSalvage)
		if b == nil {
			return nil
		}
		v := b.Get([]byte(dir))
		if all = bytes.Equal(v, allSegments); !all {
			for ; len(v) >= 4; v = v[4:] {
				some = append(some, binary.BigEndian.Uint32(v))
			}
		}
		return nil
	})
	return all, some, err
}

// YetToSalvage reports whether all of any directory's segments are yet to be read: their numbers are not known.
func (c *Catalog) YetToSalvage() (yes bool, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketSalvage)
		if b == nil {
			return nil
		}
		return b.ForEach(func(_, v []byte) error { yes = yes || bytes.Equal(v, allSegments); return nil })
	})
	return yes, err
}

// Salvaged records blocks that were found in segments. Of two with one id the newer one stays. A block that was found at the same place
// before has been renewed since, or else its record is the same.
func (c *Catalog) Salvaged(batch []Record) error {
	return c.update(func(tx *bbolt.Tx, w *weights) error {
		for _, r := range batch {
			old, err := ParseRecord(tx.Bucket(bucketBlocks).Get([]byte(r.ID)))
			switch {
			case err == nil && old.Segment == r.Segment && old.Offset == r.Offset:
			case err == nil && old.newer(r):
				err = w.free(tx, &r)
			default:
				err = w.put(tx, r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
