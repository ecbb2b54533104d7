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
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Catalog is the list of landed blocks by id: a bbolt file, so that looking a block up costs no memory and the list
// survives kill -9. Each value carries its own CRC-32C, for bbolt does not check its pages.
type Catalog struct {
	db      *bbolt.DB
	change  change
	Writing sync.Mutex             // held by a writer while it decides what is there, and until it has told of it
	rests   atomic.Pointer[weight] // the sum of everything, set by weigh
	wasted  atomic.Int64
	pages   resident
	values  []byte // of the records of a commit, one behind the other; guarded by Writing
}

var (
	bucketBlocks   = []byte("blocks")
	bucketSegments = []byte("segments")
)

// mapBytes is how much address space is set aside for the catalog: enough for some 600,000 blocks. Beyond that bbolt maps
// the file anew as it grows, and copies whatever it holds at that moment.
const mapBytes = 256 << 20

// format is the format of the records, kept as the sequence number of their bucket. It rises with each change that another version of
// lifeboat would misread. A catalog of another format is made anew, like a damaged one.
const format = 1

func open(dir string) (*Catalog, error) { return openFile(dir, catalogName) }

// openFile opens the catalog that has this name once nobody else has it open.
func openFile(dir, name string) (_ *Catalog, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a bad page number in a damaged page leads outside the file
	defer NoPanic("the catalog", &err)
	p := filepath.Join(dir, name)
	// A second of patience: a killed predecessor's lock goes with it, a living one is a mistake worth naming. The list
	// of free pages is synced with the rest: without it bbolt walks all pages at a start, and at a damaged one panics on
	// a goroutine of its own, which nobody could catch.
	var locked *os.File
	db, err := bbolt.Open(p, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: mapBytes,
		OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
			locked, err = os.OpenFile(name, flag, mode)
			return locked, err
		}})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open catalog %s: another agent uses this data_dir: stop it, or give this one its own: %w", p, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open catalog %s: %w", p, err)
	}
	if is, err := hasName(locked, p); err != nil || !is { // the agent that had it open until now has put another file in its place
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

// view and write run a transaction. bbolt panics when a page is damaged. That is one disk's fault, and no reason for the
// agent to go down, for it has other disks to empty. The transaction is rolled back.
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

// NoPanic turns bbolt's panic over a damaged file into an error. It has to be deferred.
func NoPanic(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s is damaged: %v: %w", what, p, wire.ErrCorrupt)
	}
}

// Close closes the catalog's file.
func (c *Catalog) Close() error { return c.db.Close() }

// Watch sets what tells whether the catalog's disk answers.
func (c *Catalog) Watch(d diskio.Disks) { c.change.Watch(d) }

// Path returns the path of its file, which may have had another name when it was opened.
func (c *Catalog) Path() string { return filepath.Join(c.change.dir, catalogName) }

// DB returns its bbolt file, for tests and measurements.
func (c *Catalog) DB() *bbolt.DB { return c.db }

// giveUp closes a catalog that is not to be used. A damaged one stays open: bbolt's panic may have left a lock that
// Close would wait for.
func (c *Catalog) giveUp(why error) error {
	if errors.Is(why, wire.ErrCorrupt) {
		return nil
	}
	return c.Close()
}

// Get returns the record of a block, or fs.ErrNotExist if none landed.
func (c *Catalog) Get(id inventory.BlockID) (r Record, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketBlocks).Get([]byte(id))
		if v == nil {
			return fs.ErrNotExist
		}
		r, err = ParseRecord(v)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("catalog: block %s: %w", id, err)
	}
	return r, err
}

// End is up to where a segment has been committed, and in which of the vault's directories it lies; "": the first.
type End struct {
	At  int64
	Dir string
}

// Change is a record to be written.
type Change struct {
	*Record
	Fresh int // the state of the catalog that had nothing under its id; 0: unknown
}

// Commit makes a batch durable: the records, up to where each segment is now valid, and spare, the stretches of segments
// that are free. Where a replaced record's block lay is free, too. Records of one id follow each other. With an error it
// returns how many of the records are written nevertheless.
func (c *Catalog) Commit(records []Change, ends map[uint32]End, spare []Record) (written int, err error) {
	for before := 0; ; before++ {
		upTo := min(len(records), written+commitRecords)
		if err := c.commitSome(records[:upTo], written, before, ends, spare); err != nil {
			return written, err
		}
		if written = upTo; written == len(records) {
			return written, nil
		}
		ends, spare = nil, nil // the first transaction has them: no record may point behind an end, where the next start cuts
	}
}

// commitRecords bounds a transaction. bbolt keeps every page that it changes in memory, and each of two thousand records
// may lie on its own.
const commitRecords = 2048

// fillPercent is how full bbolt leaves a page that it splits. Most blocks come a directory at a time, and a commit's
// records are in the order of ids: a sixth fewer pages are written than with bbolt's half, and a twentieth more when ids
// come in no order at all (docs/design/measured.md).
const fillPercent = 0.8

// commitSome writes records[from:] and what each of them changes, in one transaction; before counts this commit's earlier ones.
func (c *Catalog) commitSome(records []Change, from, before int, ends map[uint32]End, spare []Record) error {
	freed := int64(0)
	err := c.update(func(tx *bbolt.Tx, w *weights) error {
		defer func() { freed = w.freed }()
		defer c.pages.looked(tx, len(records)-from)
		blocks, segments := tx.Bucket(bucketBlocks), tx.Bucket(bucketSegments)
		blocks.FillPercent = fillPercent
		values := c.values[:0]
		defer func() { c.keepValues(values) }()
		var key []byte // reused: bbolt copies keys, but not values
		for i, r := range records[from:] {
			key = append(key[:0], r.ID...)
			first := from+i == 0 || records[from+i-1].ID != r.ID
			if fresh := first && r.Fresh != 0 && r.Fresh+before+1 == tx.ID(); !fresh {
				if err := w.lift(tx, key, *r.Record); err != nil {
					return err
				}
			}
			at := len(values)
			values = AppendRecord(values, *r.Record)
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

// keepValues keeps the space of the written values for the next commit, unless it is large.
func (c *Catalog) keepValues(values []byte) {
	if cap(values) <= mostValues {
		c.values = values
	}
}

// mostValues is several times what a commit of small blocks writes.
const mostValues = 1 << 20

// Forget drops the record of a block that is not here any more.
func (c *Catalog) Forget(id inventory.BlockID) error {
	return c.update(func(tx *bbolt.Tx, w *weights) error { return w.drop(tx, []byte(id)) })
}

// SegmentEnds returns up to where each segment has been committed.
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

// Batch is how many records a read transaction yields. A long transaction would make the catalog's file grow meanwhile.
const Batch = 512

// All yields every record in the order of ids, a batch at a time, so the loop may last long. A corrupt value comes as an
// error, with the id alone.
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
					r, err := ParseRecord(v)
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
