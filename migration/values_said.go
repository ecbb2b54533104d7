package migration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// Appraisal is what a program says that a block is worth: how long it takes to compute it again. 0 takes back what was said.
type Appraisal struct {
	ID    inventory.BlockID
	Value time.Duration
}

// Appraise checks what a program says of a block: of one of the stores, or of a file of such a block.
func Appraise(stores []*inventory.Store, id string, value time.Duration) (Appraisal, error) {
	block, err := inventory.ParseBlockID(id)
	if err != nil {
		return Appraisal{}, err
	}
	if value != 0 && value < leastValue || value > inventory.MostValue {
		return Appraisal{}, fmt.Errorf("%s is worth %v: want %v to %v, or 0 to take back what was said", id, value, leastValue, inventory.MostValue)
	}
	s := inventory.StoreOf(stores, block)
	if s == nil {
		return Appraisal{}, fmt.Errorf("%s: this node has no store %s", id, block.Store())
	}
	if s.Layout == inventory.LayoutSpark {
		block = block.Block()
	}
	return Appraisal{block, value}, nil
}

const (
	// leastValue is the unit in which a value goes with its block from node to node.
	leastValue = time.Millisecond
	// mostSaidBytes bounds what is kept of ids and values: a million blocks with ids of a hundred bytes.
	mostSaidBytes = 128 << 20
	// saidBytes is the size of a value with the time at which it was said.
	saidBytes = 16

	// absentFor is how long a block may be looked for in vain before what was said of it is forgotten: a program may say
	// what a block is worth before it writes it.
	absentFor = 24 * time.Hour
	// saidFor is how long a value holds unless it is said again: nothing computed runs longer.
	saidFor = inventory.MostValue
)

// ErrSaidEnough is why no more values are taken.
var ErrSaidEnough = fmt.Errorf("values are kept for ids of %d MiB, and there may be no more: take some back with the value 0", mostSaidBytes>>20)

// Appraisals has the last value that programs on this node said of each block, on disk: a bbolt file, so that a million values
// cost no memory and survive kill -9. Its methods may be called from any goroutine. While its disk does not answer it knows of
// no values: the file is mapped into memory, where a wait for the disk would keep a processor from all other goroutines.
type Appraisals struct {
	diskio.Watched
	db    *bbolt.DB
	bytes atomic.Uint64 // the bucket's sequence; 0, as on the usual node, where programs say nothing: no block is looked up

	writing sync.Mutex
}

// bucketSaid has a value and its time, in nanoseconds, by id. Its sequence is how many bytes that is in all.
var bucketSaid = []byte("said")

// OpenAppraisals opens the file, or makes it. Nil disks are well.
func OpenAppraisals(file string, disks diskio.Disks) (_ *Appraisals, err error) {
	defer catalog.NoPanic("what programs said of values", &err)
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	a := &Appraisals{db: db}
	a.Watch(disks)
	err = db.Update(func(tx *bbolt.Tx) error {
		said, err := tx.CreateBucketIfNotExists(bucketSaid)
		if err == nil {
			a.bytes.Store(said.Sequence())
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", file, err), db.Close())
	}
	return a, nil
}

// Close closes the file.
func (a *Appraisals) Close() error { return a.db.Close() }

// Say takes all of it, durably, or nothing.
func (a *Appraisals) Say(all []Appraisal, now time.Time) error {
	return a.change(func(said *bbolt.Bucket, size *uint64) error {
		for _, p := range all {
			if err := put(said, size, p, now); err != nil {
				return err
			}
		}
		if *size > mostSaidBytes {
			return ErrSaidEnough
		}
		return nil
	})
}

func (a *Appraisals) change(do func(said *bbolt.Bucket, size *uint64) error) (err error) {
	defer catalog.NoPanic("what programs said of values", &err)
	if err := a.Readable(a.db.Path()); err != nil { // before the lock, which a call that hangs there may have
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.Readable(a.db.Path()); err != nil {
		return err
	}
	var size uint64
	err = a.db.Update(func(tx *bbolt.Tx) error {
		said := tx.Bucket(bucketSaid)
		size = said.Sequence()
		if err := do(said, &size); err != nil {
			return err
		}
		return said.SetSequence(size)
	})
	if err == nil {
		a.bytes.Store(size)
	}
	return err
}

func put(said *bbolt.Bucket, size *uint64, p Appraisal, now time.Time) error {
	k := []byte(p.ID)
	if said.Get(k) != nil {
		*size -= uint64(len(k) + saidBytes)
	}
	if p.Value == 0 {
		return said.Delete(k)
	}
	*size += uint64(len(k) + saidBytes)
	v := binary.BigEndian.AppendUint64(nil, uint64(p.Value))
	return said.Put(k, binary.BigEndian.AppendUint64(v, uint64(now.UnixNano())))
}

// of returns the value that was said of a block; 0: none was, or none can be read. Nil Appraisals know of none.
func (a *Appraisals) of(id inventory.BlockID) (value time.Duration) {
	if a == nil || a.bytes.Load() == 0 || a.Readable(a.db.Path()) != nil {
		return 0
	}
	var err error
	defer catalog.NoPanic("what programs said of values", &err) // a block without a value is carried all the same
	_ = a.db.View(func(tx *bbolt.Tx) error {
		value, _ = parseSaid(tx.Bucket(bucketSaid).Get([]byte(id)))
		return nil
	})
	return value
}

// parseSaid returns 0 for a value that nobody can have said: bbolt does not check its pages.
func parseSaid(v []byte) (value time.Duration, at time.Time) {
	if len(v) != saidBytes {
		return 0, time.Time{}
	}
	value = time.Duration(binary.BigEndian.Uint64(v))
	if value < leastValue || value > inventory.MostValue {
		return 0, time.Time{}
	}
	return value, time.Unix(0, int64(binary.BigEndian.Uint64(v[8:])))
}

// tidyBatch is how many values are looked at in one go, so that a Say does not wait for all of them.
const tidyBatch = 1000

// Tidy forgets what was said of blocks that are gone, and what was not said again for long. there says whether a block is
// on this node, or may be.
func (a *Appraisals) Tidy(ctx context.Context, now time.Time, there func(inventory.BlockID) bool) (forgotten int, err error) {
	defer catalog.NoPanic("what programs said of values", &err)
	type stale struct{ id, said []byte }
	for next := []byte{}; next != nil && ctx.Err() == nil; {
		var old, doubtful []stale
		if err := a.Readable(a.db.Path()); err != nil {
			return forgotten, err
		}
		err := a.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucketSaid).Cursor()
			k, v := c.Seek(next)
			for range tidyBatch {
				if k == nil {
					break
				}
				s := stale{bytes.Clone(k), bytes.Clone(v)}
				switch _, at := parseSaid(v); {
				case now.Sub(at) > saidFor:
					old = append(old, s)
				case now.Sub(at) > absentFor:
					doubtful = append(doubtful, s)
				}
				k, v = c.Next()
			}
			next = bytes.Clone(k)
			return nil
		})
		if err != nil {
			return forgotten, err
		}
		for _, s := range doubtful {
			if ctx.Err() == nil && !there(inventory.BlockID(s.id)) {
				old = append(old, s)
			}
		}
		if len(old) == 0 {
			continue
		}
		err = a.change(func(said *bbolt.Bucket, size *uint64) error {
			for _, s := range old {
				if !bytes.Equal(said.Get(s.id), s.said) {
					continue // it was said again meanwhile
				}
				if err := put(said, size, Appraisal{ID: inventory.BlockID(s.id)}, now); err != nil {
					return err
				}
				forgotten++
			}
			return nil
		})
		if err != nil {
			return forgotten, err
		}
	}
	return forgotten, nil
}

// Worth returns what somebody said that blocks of the stores and the vault are worth; 0 for those of which nobody did.
func Worth(stores []*inventory.Store, told *Appraisals) func(inventory.Block) time.Duration {
	return plan.Said(stores, told.of)
}

// There reports whether a block is on this node, in a store or landed from others. A block on a disk that does not answer counts as there.
func There(stores []*inventory.Store, v *vault.Vault, id inventory.BlockID) bool {
	_, err := findIn(stores, id)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = v.Catalog.Get(id)
	}
	return !errors.Is(err, fs.ErrNotExist)
}
