package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Catalog is what has landed here, by id, on disk: a bbolt file, so that looking a block up costs no memory and the list
// survives kill -9. Each value carries its own CRC-32C: bbolt does not check its pages.
type Catalog struct {
	db      *bbolt.DB
	change  change
	Writing sync.Mutex             // one writer at a time decides what is there, and then says so
	rests   atomic.Pointer[weight] // in all, from weigh on
	wasted  atomic.Int64
	pages   resident
	values  []byte // of the records of a commit, one behind the other; belongs to who may write to db
}

var (
	bucketBlocks   = []byte("blocks")
	bucketSegments = []byte("segments")
)

// mapBytes is what of the address space is set aside for the catalog: some 600,000 blocks. Beyond that bbolt maps it anew
// as it grows, and copies whatever it holds at that moment.
const mapBytes = 256 << 20

// format is of the records, as the sequence of their bucket. It rises with each change after which another lifeboat would read them wrongly,
// or not at all: a catalog of another format is made anew, as one that is damaged is.
const format = 1

func open(dir string) (*Catalog, error) { return openFile(dir, catalogName) }

// openFile opens the catalog that has this name once nobody else has it open.
func openFile(dir, name string) (_ *Catalog, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of the page that a bad number in another leads to
	defer NoPanic("the catalog", &err)
	p := filepath.Join(dir, name)
	// A second of patience: a killed predecessor's lock goes with it, a living one is a mistake worth naming.
	// The list of free pages is synced with the rest: to find it anew bbolt walks all pages, and where one is damaged it
	// panics on a goroutine of its own, which nobody could catch.
	var locked *os.File
	db, err := bbolt.Open(p, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: mapBytes,
		OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
			locked, err = os.OpenFile(name, flag, mode)
			return locked, err
		}})
	if err != nil {
		return nil, fmt.Errorf("open catalog %s (is another agent using this data_dir?): %w", p, err)
	}
	if is, err := hasName(locked, p); err != nil || !is { // who had it open until now has put another in its place
		if err = errors.Join(err, db.Close()); err != nil {
			return nil, fmt.Errorf("open catalog %s: %w", p, err)
		}
		return openFile(dir, name)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		blocks, err := tx.CreateBucketIfNotExists(bucketBlocks)
		if err != nil {
			return err
		}
		if any, _ := blocks.Cursor().First(); any == nil && blocks.Sequence() == 0 {
			err = blocks.SetSequence(format)
		} else if is := blocks.Sequence(); is != format {
			err = fmt.Errorf("it is of format %d, and this lifeboat knows format %d: %w", is, format, wire.ErrCorrupt)
		}
		_, missing := tx.CreateBucketIfNotExists(bucketSegments)
		return errors.Join(err, missing)
	})
	c := &Catalog{db: db, change: change{dir: filepath.Clean(dir)}}
	if err == nil {
		err = c.weigh()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog %s: %w", p, err), c.giveUp(err))
	}
	return c, nil
}

// hasName reports whether a file is the one at a path.
func hasName(f *os.File, path string) (bool, error) {
	is, err := f.Stat()
	at, gone := os.Stat(path)
	return os.SameFile(is, at), errors.Join(err, gone)
}

// view and write run a transaction. bbolt panics when a page is not what it should be; that is a fault of this disk's, and
// no reason to take the agent down, which has other disks to empty. The transaction is rolled back.
func (c *Catalog) view(look func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer NoPanic("the catalog", &err)
	if err := c.change.admits(c.db); err != nil {
		return err
	}
	return c.db.View(func(tx *bbolt.Tx) error {
		defer c.pages.looked(tx, 1)
		return look(tx)
	})
}

func (c *Catalog) write(change func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer NoPanic("the catalog", &err)
	defer c.change.begin()()
	return c.db.Update(change)
}

// NoPanic turns bbolt's panic over what is in a file into an error. To be deferred.
func NoPanic(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s is damaged: %v: %w", what, p, wire.ErrCorrupt)
	}
}

// Close closes its file.
func (c *Catalog) Close() error { return c.db.Close() }

// Watch says whom to ask whether its disk answers.
func (c *Catalog) Watch(d diskio.Disks) { c.change.Watch(d) }

// DB is its file, for who measures it or puts it to the test.
func (c *Catalog) DB() *bbolt.DB { return c.db }

// giveUp closes a catalog that is not to be used. One that bbolt panicked over stays open: it may hold a lock for ever.
func (c *Catalog) giveUp(why error) error {
	if errors.Is(why, wire.ErrCorrupt) {
		return nil
	}
	return c.Close()
}

// Get returns fs.ErrNotExist for what never landed.
func (c *Catalog) Get(id inventory.BlockID) (r Record, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketBlocks).Get([]byte(id))
		if v == nil {
			return fs.ErrNotExist
		}
		r, err = parseRecord(v)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("catalog: block %s: %w", id, err)
	}
	return r, err
}

// End is how far a segment was committed, and in which of the vault's directories it lies; "" is the first.
type End struct {
	At  int64
	Dir string
}

// Change is a record to be written.
type Change struct {
	*Record
	Fresh int // the state of the catalog that had nothing under its id; 0: nobody knows of one
}

// Commit makes a batch durable: the records, and how far each segment is now valid. What a record replaces is free, and so
// is what a segment has in spare. Records of one id follow each other.
// With an error it tells how many of the records are written nevertheless.
func (c *Catalog) Commit(records []Change, ends map[uint32]End, spare []Record) (written int, err error) {
	for before := 0; ; before++ {
		upTo := min(len(records), written+commitRecords)
		if err := c.commitSome(records[:upTo], written, before, ends, spare); err != nil {
			return written, err
		}
		if written = upTo; written == len(records) {
			return written, nil
		}
		ends, spare = nil, nil // first of all: no record speaks of what is cut off at the next start
	}
}

// commitRecords bounds a transaction. bbolt keeps every page that it changes in memory, and each of two thousand records
// may lie on its own.
const commitRecords = 2048

// fillPercent is how full a page is left that is split. Most blocks come a directory at a time, and a commit's are in their
// order: a sixth fewer pages are written than with bbolt's half, and a twentieth more when ids come in no order at all
// (docs/design/measured.md).
const fillPercent = 0.8

// commitSome writes the records from one on, in the transaction after so many others of this commit.
func (c *Catalog) commitSome(records []Change, from, before int, ends map[uint32]End, spare []Record) error {
	freed := int64(0)
	err := c.update(func(tx *bbolt.Tx, w *weights) error {
		defer func() { freed = w.freed }()
		defer c.pages.looked(tx, len(records)-from)
		blocks, segments := tx.Bucket(bucketBlocks), tx.Bucket(bucketSegments)
		blocks.FillPercent = fillPercent
		values := c.values[:0]
		defer func() { c.keepValues(values) }()
		var key []byte // which bbolt copies, other than a value
		for i, r := range records[from:] {
			key = append(key[:0], r.ID...)
			first := from+i == 0 || records[from+i-1].ID != r.ID
			if fresh := first && r.Fresh != 0 && r.Fresh+before+1 == tx.ID(); !fresh {
				if err := w.lift(tx, key, *r.Record); err != nil {
					return err
				}
			}
			at := len(values)
			values = appendRecord(values, *r.Record)
			w.add(r.Record, len(values)-at)
			if err := blocks.Put(key, values[at:len(values):len(values)]); err != nil {
				return err
			}
		}
		for _, r := range spare {
			if err := w.free(tx, &r); err != nil {
				return err
			}
		}
		for no, end := range ends {
			k := binary.BigEndian.AppendUint64(nil, uint64(no))
			v := append(binary.BigEndian.AppendUint64(nil, uint64(end.At)), end.Dir...)
			if err := segments.Put(k, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write catalog: %w", err)
	}
	c.wasted.Add(freed)
	return nil
}

// keepValues keeps the space of what was written for the next commit, unless it is much.
func (c *Catalog) keepValues(values []byte) {
	if cap(values) <= mostValues {
		c.values = values
	}
}

// mostValues is several times what a commit of small blocks writes.
const mostValues = 1 << 20

// Forget drops the record of a block that is no longer here.
func (c *Catalog) Forget(id inventory.BlockID) error {
	return c.update(func(tx *bbolt.Tx, w *weights) error { return w.drop(tx, []byte(id)) })
}

// SegmentEnds tells how far each segment was committed.
func (c *Catalog) SegmentEnds() (ends map[uint32]End, err error) {
	ends = map[uint32]End{}
	err = c.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketSegments).ForEach(func(k, v []byte) error {
			if len(k) == 8 && len(v) >= 8 {
				ends[uint32(binary.BigEndian.Uint64(k))] = End{int64(binary.BigEndian.Uint64(v)), string(v[8:])}
			}
			return nil
		})
	})
	return ends, err
}

// Batch keeps read transactions short: a long one would make the catalog's file grow behind it.
const Batch = 512

// All yields every record in the order of ids, a batch at a time, so it may be left open for long. A value that is corrupt
// comes as an error, with the id alone.
func (c *Catalog) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		type value struct {
			Record
			err error
		}
		var after []byte
		for {
			batch := make([]value, 0, Batch)
			err := c.view(func(tx *bbolt.Tx) error {
				cur := tx.Bucket(bucketBlocks).Cursor()
				k, v := cur.Seek(after)
				if k != nil && after != nil && string(k) == string(after) {
					k, v = cur.Next()
				}
				for ; k != nil && len(batch) < Batch; k, v = cur.Next() {
					after = append(after[:0], k...)
					r, err := parseRecord(v)
					if err != nil {
						r, err = Record{Opening: wire.Opening{ID: string(k)}}, fmt.Errorf("catalog: block %s: %w", k, err)
					}
					batch = append(batch, value{r, err})
				}
				c.pages.looked(tx, len(batch)/recordsOnAPage)
				return nil
			})
			for _, b := range batch {
				if !yield(b.Record, b.err) {
					return
				}
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("read catalog: %w", err))
				return
			}
			if len(batch) < Batch {
				return
			}
		}
	}
}
