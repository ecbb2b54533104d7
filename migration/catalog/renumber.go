package catalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/fields"
)

// A record says where a block lies in place by the number of a store's directory in the configuration. The configuration changes: a
// failed disk is taken out, a new one is put in. So the catalog keeps which directory each number means, and brings its records up to
// date when the agent starts. Otherwise all that landed would look as if engines had removed it (ghosts.go).

// bucketRoots has a numbering for each store, by name.
var bucketRoots = []byte("roots")

// numbering is which directories the numbers in a store's records mean. Directories that are no longer configured stand behind the
// others, for they may be put back.
type numbering struct {
	dirs []string
	next []string // the directories that the records are being changed to; none: no change is under way
	done string   // the name of the last record that was changed
}

func (n numbering) append(b []byte) []byte {
	for _, dirs := range [][]string{n.dirs, n.next} {
		b = binary.AppendUvarint(b, uint64(len(dirs)))
		for _, dir := range dirs {
			b = fields.AppendString(b, dir)
		}
	}
	return fields.AppendString(b, n.done)
}

func parseNumbering(v []byte) (n numbering, err error) {
	d := fields.Decode(v)
	for _, dirs := range []*[]string{&n.dirs, &n.next} {
		for range d.Uvarint() {
			if !d.Sound() {
				break
			}
			*dirs = append(*dirs, d.Text())
		}
	}
	n.done = d.Text()
	return n, d.End("numbers of directories")
}

// now returns the new number of a directory. A number that was never the store's becomes one that still is none.
func (n numbering) now(root int) int {
	if root >= len(n.dirs) {
		return root + len(n.next)
	}
	return slices.Index(n.next, n.dirs[root])
}

// renumberBatch is how many records are read in one transaction.
const renumberBatch = 4096

// Renumber has the records of a store use the numbers of its directories as configured now. After a crash it goes on
// where it was.
func (c *Catalog) Renumber(store string, dirs []string) error {
	for {
		var n numbering
		err := c.view(func(tx *bbolt.Tx) (err error) {
			if b := tx.Bucket(bucketRoots); b != nil && b.Get([]byte(store)) != nil {
				n, err = parseNumbering(b.Get([]byte(store)))
			}
			return err
		})
		switch {
		case err != nil:
		case n.dirs == nil: // nobody noted which configuration the numbers are of: most likely this one
			n.dirs = dirs
			err = c.write(func(tx *bbolt.Tx) error { return n.put(tx, store) })
		case n.next != nil:
			err = c.write(func(tx *bbolt.Tx) error { return n.step(tx, store, renumberBatch) })
		case len(n.dirs) >= len(dirs) && slices.Equal(n.dirs[:len(dirs)], dirs):
			return nil
		default:
			n.next = slices.Clone(dirs)
			for _, dir := range n.dirs {
				if !slices.Contains(dirs, dir) {
					n.next = append(n.next, dir)
				}
			}
			err = c.write(func(tx *bbolt.Tx) error { return n.put(tx, store) })
		}
		if err != nil {
			return fmt.Errorf("bring the catalog up to date with the directories of store %s: %w", store, err)
		}
	}
}

func (n numbering) put(tx *bbolt.Tx, store string) error {
	b, err := tx.CreateBucketIfNotExists(bucketRoots)
	if err != nil {
		return err
	}
	return b.Put([]byte(store), n.append(nil))
}

// step renumbers up to most records. A corrupt value has no numbers to change.
func (n numbering) step(tx *bbolt.Tx, store string, most int) error {
	type change struct{ id, value []byte }
	var changes []change
	blocks, of := tx.Bucket(bucketBlocks), []byte(store+"/")
	cur, seen := blocks.Cursor(), 0
	k, v := cur.Seek(append(of, n.done...))
	if n.done != "" && bytes.Equal(k, append(of, n.done...)) {
		k, v = cur.Next()
	}
	for ; bytes.HasPrefix(k, of) && seen < most; k, v = cur.Next() {
		seen++
		n.done = string(k[len(of):])
		r, err := ParseRecord(v)
		if err != nil || len(r.Placed) == 0 {
			continue
		}
		for i := range r.Placed {
			r.Placed[i].Root = n.now(r.Placed[i].Root)
		}
		changes = append(changes, change{bytes.Clone(k), AppendRecord(nil, r)})
	}
	for _, ch := range changes {
		if err := blocks.Put(ch.id, ch.value); err != nil {
			return err
		}
	}
	if seen < most {
		n = numbering{dirs: n.next}
	}
	return n.put(tx, store)
}
