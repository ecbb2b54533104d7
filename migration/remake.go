package migration

import (
	"cmp"
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
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A catalog that is damaged is set aside, and made anew from the segments: an agent that does not start serves nothing. What
// is only in the catalog is lost with it: blocks in place are from then on their store's own, as if its engine had written
// them.

// bucketSalvage has the directories whose segments a catalog that was made anew has not read yet. A disk that is away is
// read when it is back.
var bucketSalvage = []byte("salvage")

// remade is what became of what had landed when the catalog was made anew.
type remade struct {
	why   error  // what was wrong with the catalog; nil: this is about a directory
	aside string // where it is now; "": there was none

	dir    string
	found  inventory.Count
	broken []Held // no longer whole
	others int    // more of them
}

// mostNamed bounds the list of broken blocks.
const mostNamed = 1000

const catalogName = "catalog.db"

// openOrRemake opens the catalog in dir. One that is damaged, or not there though segments are, is made anew, and has all of
// the directories to read.
func openOrRemake(dir string, dirs []string) (*catalog, []remade, error) {
	p := filepath.Join(dir, catalogName)
	why := noCatalog(p, dirs)
	if why == nil {
		c, err := openCatalog(dir)
		if err == nil {
			err = c.verify()
			if err == nil {
				return c, nil, nil
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
	return c, []remade{{why: why, aside: aside}}, err
}

// noCatalog says so if there is no catalog, or an empty one, where there are segments or an earlier one was set aside.
func noCatalog(p string, dirs []string) error {
	if info, err := os.Lstat(p); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before, _ := filepath.Glob(p + ".damaged-*")
	if len(before) == 0 && !anySegments(dirs) {
		return nil
	}
	return fmt.Errorf("%s is gone or empty, and there are segments: %w", p, wire.ErrCorrupt)
}

// anySegments reports whether there may be segments in any of these directories: one whose disk does not answer may have some.
func anySegments(dirs []string) bool {
	some, late := make(chan bool, len(dirs)), time.After(diskio.OpenPatience)
	for _, dir := range dirs {
		go func() {
			all, _ := filepath.Glob(filepath.Join(dir, "segments", "seg-*"))
			some <- len(all) > 0
		}()
	}
	for range dirs {
		select {
		case is := <-some:
			if is {
				return true
			}
		case <-late:
			return true
		}
	}
	return false
}

// ruined reports whether it is the catalog's bytes that keep it from being opened, and not its disk, another agent or a
// want of rights.
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

// setAside gives the catalog another name, and removes those that had got one before but for the last.
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

// createCatalog makes a catalog that has directories to read. It gets its name when it says so.
func createCatalog(dir string, dirs []string) (*catalog, error) {
	fresh := filepath.Join(dir, catalogName+".new")
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
			err = cmp.Or(err, b.Put([]byte(d), []byte{1}))
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
	return openCatalog(dir)
}

// verify reads the catalog through, looks each id up, and counts: pages have no checksums of their own. It costs a look-up
// a block. A record that cannot be read is that block's matter alone.
func (c *catalog) verify() error {
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
	if n := c.count().Blocks; err == nil && (n < sound || n > all) {
		err = fmt.Errorf("%s has %d blocks, and says that it has %d: %w", c.db.Path(), all, n, wire.ErrCorrupt)
	}
	return err
}

// toSalvage reports whether a directory's segments are yet to be read.
func (c *catalog) toSalvage(dir string) (yes bool, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketSalvage)
		yes = b != nil && b.Get([]byte(dir)) != nil
		return nil
	})
	return yes, err
}

// numbersAside are numbers of segments that are left free while directories are yet to be read: theirs must not come to mean
// other bytes.
const numbersAside = 1 << 20

func (c *catalog) yetToSalvage() (yes bool, err error) {
	err = c.view(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketSalvage); b != nil {
			k, _ := b.Cursor().First()
			yes = k != nil
		}
		return nil
	})
	return yes, err
}

// salvage reads a directory's segments into a catalog that was made anew.
func (v *Vault) salvage(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "segments"))
	if err != nil {
		return fmt.Errorf("the catalog was made anew and should learn what lies here (if nothing ever did: mkdir %s): %w", filepath.Join(dir, "segments"), err)
	}
	ends, err := v.catalog.segmentEnds()
	if err != nil {
		return err
	}
	report := remade{dir: dir}
	for _, e := range entries {
		no, ok := segmentNumber(e.Name())
		if !ok {
			continue
		}
		if end, taken := ends[no]; taken && end.at > 0 && cmp.Or(end.dir, v.dir) != dir {
			return fmt.Errorf("segment %d lies here and in %s", no, cmp.Or(end.dir, v.dir))
		}
		if err := v.salvageSegment(dir, no, &report); err != nil {
			return fmt.Errorf("read segment %d for the catalog: %w", no, err)
		}
	}
	err = v.catalog.write(func(tx *bbolt.Tx) error { return tx.Bucket(bucketSalvage).Delete([]byte(dir)) })
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.remade = append(v.remade, report)
	return nil
}

func segmentNumber(name string) (no uint32, ok bool) {
	n, err := fmt.Sscanf(name, "seg-%08d", &no)
	return no, n == 1 && err == nil
}

func (v *Vault) salvageSegment(dir string, no uint32, report *remade) error {
	var batch []record
	flush := func() error {
		err := v.catalog.salvaged(batch)
		batch = batch[:0]
		return err
	}
	whole := func(r record) error {
		report.found = report.found.Plus(inventory.Count{Blocks: 1, Bytes: r.Bytes()})
		if batch = append(batch, r); len(batch) < listBatch {
			return nil
		}
		return flush()
	}
	broken := func(h Held) {
		if len(report.broken) < mostNamed {
			report.broken = append(report.broken, h)
		} else {
			report.others++
		}
	}
	s, err := salvage(segmentFile(dir, no), no, whole, broken)
	if err = cmp.Or(err, flush()); err != nil {
		return err
	}
	end := segmentEnd{at: s.end}
	if dir != v.dir {
		end.dir = dir
	}
	var spare []record
	for _, g := range s.gaps {
		if g.at < end.at {
			spare = append(spare, record{Segment: no, Offset: g.at, Length: g.length})
		}
	}
	_, err = v.catalog.commit(nil, map[uint32]segmentEnd{no: end}, spare)
	return err
}

// salvaged records blocks that were found in segments. Of two with one id the newer stays.
func (c *catalog) salvaged(batch []record) error {
	return c.update(func(tx *bbolt.Tx, w weights) error {
		for _, r := range batch {
			old, err := parseRecord(tx.Bucket(bucketBlocks).Get([]byte(r.ID)))
			if err == nil && old.newer(r) {
				err = tx.Bucket(bucketFree).Put(rangeKey(r.Segment, r.Offset), rangeValue(r.Length))
			} else {
				err = w.put(tx, r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (r record) newer(than record) bool {
	return r.ModTime > than.ModTime || r.ModTime == than.ModTime && r.Landed.After(than.Landed)
}

// takeRemade returns what has become of the catalog since it was last asked.
func (v *Vault) takeRemade() (all []remade) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, v.remade = v.remade, nil
	return all
}

// sayRemade tells of a catalog that was made anew, and of each block that is no longer whole.
func (r *Receiver) sayRemade() {
	for _, m := range r.cfg.Vault.takeRemade() {
		if m.why != nil {
			r.cfg.Log.Error("the catalog of what landed here could not be used, and is made anew from the segments; blocks that landed in their place are their store's own from now on",
				"err", m.why, "aside", m.aside)
			continue
		}
		r.cfg.Log.Warn("read segments for the new catalog", "dir", m.dir, "blocks", m.found.Blocks, "bytes", m.found.Bytes, "broken", len(m.broken)+m.others)
		for _, h := range m.broken {
			r.broke(h, wire.ErrCorrupt)
		}
	}
}
