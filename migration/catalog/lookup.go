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

// Lookup gets records one after the other, with less garbage than Bucket.Get makes, and without a search for what lies
// between the last two that it has seen: of blocks in the order of their ids, that is most of the new ones.
type Lookup struct {
	State int // of the catalog: it is another one after each change
	cur   *bbolt.Cursor
	key   []byte // that was searched for last; nil: none was
	next  []byte // the first one from there on; nil: there is none
}

// Look looks up records, so many of them, in one state of the catalog.
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

// Record returns fs.ErrNotExist for what never landed, and the id alone with wire.ErrCorrupt of what cannot be read.
func (l *Lookup) Record(id string) (r Record, err error) {
	v := l.get(id)
	if v == nil {
		return r, fs.ErrNotExist
	}
	if r, err = parseRecord(v); err != nil {
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

// Unsound returns those of the ids whose records cannot be read, or are another block's.
func (c *Catalog) Unsound(ids []inventory.BlockID) (bad []inventory.BlockID) {
	err := c.view(func(tx *bbolt.Tx) error {
		defer c.pages.looked(tx, len(ids))
		for _, id := range ids {
			v := tx.Bucket(bucketBlocks).Get([]byte(id))
			if v == nil {
				continue
			}
			if r, err := parseRecord(v); err != nil || r.ID != string(id) {
				bad = append(bad, id)
			}
		}
		return nil
	})
	if err != nil { // the catalog itself: that is no single block's matter
		return nil
	}
	return bad
}

// Apps are the apps of what landed here, in order. It looks at one record of each.
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
				next = append(append(next[:0], id.Store()+"/"+id.Scope()...), '/'+1) // what comes behind all of "STORE/SCOPE/"
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

// LandedIn reports whether files are on record in one of a store's directories.
func (c *Catalog) LandedIn(store string, root int) (found bool) {
	_ = c.view(func(tx *bbolt.Tx) error {
		of := []byte(store + "/")
		cur := tx.Bucket(bucketBlocks).Cursor()
		for k, v := cur.Seek(of); bytes.HasPrefix(k, of) && !found; k, v = cur.Next() {
			r, err := parseRecord(v)
			found = err == nil && r.Segment == 0 && slices.ContainsFunc(r.Placed, func(p Placed) bool { return p.Root == root })
		}
		return nil
	})
	return found
}

// Some returns blocks of a store that are asked for, so many at most that have no more than so many bytes but for the last, behind the
// id after, and the last id that it looked at: nil when that was the store's last. It reads little at a time: a long transaction would
// make the catalog's file grow.
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
			r, err := parseRecord(v)
			if err == nil && asked(r) { // what cannot be read is named when it is asked for
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

// InPlace reports whether files of a block are in place, or about to be.
func (c *Catalog) InPlace(id inventory.BlockID) (is bool) {
	err := c.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketBlocks).Get([]byte(id))
		if v == nil {
			return nil
		}
		r, err := parseRecord(v)
		is = len(r.Placed) > 0
		return err
	})
	return is || err != nil
}
