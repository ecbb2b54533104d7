package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// bbolt keeps the pages of what is gone for what comes, so a catalog's file stays as large as it ever was. Where most of it is of no use it is
// written anew at a start, before anybody uses it: beside the other, synced, read through, and only then under its name. Whatever goes wrong
// with that leaves the file that is.

const (
	// sparseBytes is what a file has that is worth the trouble: some 50,000 blocks that came and went. sparseTimes is how many times larger
	// it is than its pages in use.
	sparseBytes = 16 << 20
	sparseTimes = 4
	// copyBytes bounds a transaction of the copy, which bbolt keeps in memory.
	copyBytes = 4 << 20
)

// draftName is what a catalog is called that is not whole yet.
const draftName = catalogName + ".new"

// compacted returns the catalog in a file of its size, if the one that it has is much larger, or itself: for want of room, or when the disk
// takes longer than patience. With an error neither is to be used. syncDir makes the names in a directory durable.
func (c *Catalog) compacted(patience time.Duration, syncDir func(dir string) error) (*Catalog, error) {
	dir := c.change.dir
	draft := filepath.Join(dir, draftName)
	_ = os.RemoveAll(draft) // of a start that was killed amid this
	size, used, err := c.fills()
	if err != nil || size < sparseBytes || size < sparseTimes*used {
		return c, nil
	}
	var anew *Catalog
	written := diskio.Beside(func() { anew, err = c.copied(draft, used, syncDir) })
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		diskio.Beside(func() {
			if <-written; err == nil {
				_ = errors.Join(os.Remove(draft), anew.Close())
			}
		})
		return c, nil
	}
	if err != nil {
		return c, nil
	}
	if os.Rename(draft, filepath.Join(dir, catalogName)) != nil {
		_ = errors.Join(os.Remove(draft), anew.Close())
		return c, nil
	}
	_ = c.Close() // nothing was written to it
	// Until the name is on disk a power cut may bring the old file back, which has nothing of what is receipted from here on.
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("write catalog %s anew: %w", dir, err), anew.Close())
	}
	return anew, nil
}

// fills returns how large the file is, and how much of it is of use.
func (c *Catalog) fills() (size, used int64, err error) {
	err = c.view(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
	pages := c.db.Stats()
	return size, size - int64(pages.FreePageN+pages.PendingPageN)*int64(c.db.Info().PageSize), err
}

// copied writes the catalog, of which so much is of use, into another file, and opens that once it is whole and synced.
func (c *Catalog) copied(draft string, used int64, syncDir func(string) error) (anew *Catalog, err error) {
	defer func() {
		if err != nil {
			_ = os.Remove(draft)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer NoPanic("the catalog", &err)
	if err := hasRoom(c.change.dir, 2*used); err != nil { // as much is left for others
		return nil, err
	}
	db, err := bbolt.Open(draft, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: mapBytes, NoSync: true, NoGrowSync: true})
	if err != nil {
		return nil, err
	}
	defer db.Close() // after a panic
	err = bbolt.Compact(db, c.db, copyBytes)
	if err = errors.Join(err, db.Sync(), db.Close()); err != nil {
		return nil, err
	}
	if anew, err = openFile(c.change.dir, draftName); err != nil {
		return nil, err
	}
	if err = errors.Join(anew.verify(), syncDir(c.change.dir)); err != nil {
		return nil, errors.Join(err, anew.giveUp(err))
	}
	return anew, nil
}

// hasRoom returns ENOSPC where the disk of a directory has not room for so many bytes.
func hasRoom(dir string, bytes int64) error {
	var st unix.Statfs_t
	_, err := diskio.Retry(func() (int, error) { return 0, unix.Statfs(dir, &st) })
	if err == nil && int64(st.Bavail)*st.Bsize < bytes {
		err = unix.ENOSPC
	}
	return err
}
