package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Lookup gets records one after the other, with less garbage than Bucket.Get. It knows without a search that ids
// between the last id it looked for and the key it found are not there: in the order of ids, those are most of the new
// blocks.
type Lookup struct {
	State int // of the catalog: it changes with each write
	cur   *bbolt.Cursor
	key   []byte // the last id that was searched for; nil: none
	next  []byte // the first key from there on; nil: there is none
}

// Look runs a lookup of so many records in one state of the catalog.
func (c *Catalog) Look(records int, in func(*Lookup)) error {
	return c.view(func(tx *bbolt.Tx) error {
		defer c.pages.looked(tx, records)
		in(newLookup(tx))
		return nil
	})
}

func newLookup(tx *bbolt.Tx) *Lookup {
	return &Lookup{State: tx.ID(), cur: tx.Bucket(bucketBlocks).Cursor()}
}

// Record returns fs.ErrNotExist if no such block landed, and the id alone with wire.ErrCorrupt if its record cannot be
// read.
func (l *Lookup) Record(id string) (r Record, err error) {
	v := l.get(id)
	if v == nil {
		return r, fs.ErrNotExist
	}
	if r, err = ParseRecord(v); err != nil {
		r.ID, err = id, fmt.Errorf("catalog: block %s: %w", id, err)
	}
	return r, err
}

func (l *Lookup) get(id string) []byte {
	if l.key != nil && string(l.key) < id && (l.next == nil || id < string(l.next)) {
		return nil
	}
	l.key = append(l.key[:0], id...)
	k, v := l.cur.Seek(l.key)
	if l.next = k; string(k) == id {
		return v
	}
	return nil
}

// Unsound returns the ids whose records cannot be read, or are another block's.
func (c *Catalog) Unsound(ids []inventory.BlockID) (bad []inventory.BlockID) {
	err := c.view(func(tx *bbolt.Tx) error {
		defer c.pages.looked(tx, len(ids))
		for _, id := range ids {
			v := tx.Bucket(bucketBlocks).Get([]byte(id))
			if v == nil {
				continue
			}
			if r, err := ParseRecord(v); err != nil || r.ID != string(id) {
				bad = append(bad, id)
			}
		}
		return nil
	})
	if err != nil { // the catalog as a whole cannot be read: that says nothing of one block
		return nil
	}
	return bad
}

// Apps returns the apps of all landed blocks, in order. It looks at one key for each.
func (c *Catalog) Apps() (apps []string, err error) {
	for next := []byte{}; next != nil; {
		err := c.view(func(tx *bbolt.Tx) error {
			cur := tx.Bucket(bucketBlocks).Cursor()
			for range Batch {
				k, _ := cur.Seek(next)
				if k == nil {
					next = nil
					return nil
				}
				id := inventory.BlockID(k)
				if app := id.App(); app != "" {
					apps = append(apps, app)
				}
				next = append(append(next[:0], id.Store()+"/"+id.Scope()...), '/'+1) // behind all ids that begin with "STORE/SCOPE/"
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(apps)
	return slices.Compact(apps), nil
}

// LandedIn reports whether the catalog has files in one of a store's directories.
func (c *Catalog) LandedIn(store string, root int) (found bool) {
	_ = c.view(func(tx *bbolt.Tx) error {
		of := []byte(store + "/")
		cur := tx.Bucket(bucketBlocks).Cursor()
		for k, v := cur.Seek(of); bytes.HasPrefix(k, of) && !found; k, v = cur.Next() {
			r, err := ParseRecord(v)
			found = err == nil && r.Segment == 0 && slices.ContainsFunc(r.Placed, func(p Placed) bool { return p.Root == root })
		}
		return nil
	})
	return found
}

// Some returns those blocks of a store behind the id after that asked picks: up to so many blocks, and no further one once they have
// bytesToFind. last is the last id that it looked at, nil at the store's end. It reads little at a time: a long transaction would make
// the catalog's file grow.
func (c *Catalog) Some(store string, after []byte, asked func(Record) bool, blocks int, bytesToFind int64) (found []Record, last []byte, err error) {
	const mostRead = 8 * Batch
	prefix := []byte(store + "/")
	err = c.view(func(tx *bbolt.Tx) error {
		cur := tx.Bucket(bucketBlocks).Cursor()
		k, v := cur.Seek([]byte(cmp.Or(string(after), string(prefix))))
		if after != nil && bytes.Equal(k, after) {
			k, v = cur.Next()
		}
		var bytesFound int64
		for read := 0; bytes.HasPrefix(k, prefix); k, v = cur.Next() {
			if read == mostRead || len(found) == blocks || bytesFound >= bytesToFind {
				return nil
			}
			read++
			last = append(last[:0], k...)
			r, err := ParseRecord(v)
			if err == nil && asked(r) { // a record that cannot be read is reported by its readers
				found = append(found, r)
				bytesFound += r.Bytes()
			}
		}
		last = nil
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read catalog: %w", err)
	}
	return found, last, err
}

// InPlace reports whether files of a block are in place, or are about to be. It reports true if the record cannot be
// read.
func (c *Catalog) InPlace(id inventory.BlockID) (is bool) {
	err := c.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketBlocks).Get([]byte(id))
		if v == nil {
			return nil
		}
		r, err := ParseRecord(v)
		is = len(r.Placed) > 0
		return err
	})
	return is || err != nil
}
