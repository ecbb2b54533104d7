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

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// bbolt keeps the pages of removed records for new ones, so a catalog's file never shrinks. If most of the file is of no use, it is copied
// at a start, before anybody uses it: into a draft that is synced, read through, and only then given the catalog's name. If any step fails,
// the old file stays.

const (
	// sparseBytes is the size from which a file is worth copying: some 50,000 blocks came and went. sparseTimes is how many times larger it
	// is than its pages in use.
	sparseBytes = 16 << 20
	sparseTimes = 4
	// copyBytes bounds a transaction of the copy, for bbolt keeps a transaction in memory.
	copyBytes = 4 << 20
)

// draftName is the name of a catalog that is not whole yet.
const draftName = catalogName + ".new"

// compacted returns the catalog in a smaller file, if its own is much larger than needed. It returns c itself if there is nothing to gain,
// no room, or the disk takes longer than patience. With an error neither may be used. syncDir makes the names in a directory durable.
func (c *Catalog) compacted(patience time.Duration, syncDir func(dir string) error) (*Catalog, error) {
	dir := c.change.dir
	draft := filepath.Join(dir, draftName)
	_ = os.RemoveAll(draft) // left by a start that was killed amid this
	size, used, err := c.fills()
	if err != nil || size < sparseBytes || size < sparseTimes*used {
		return c, nil
	}
	var anew *Catalog
	written := await.Beside(func() { anew, err = c.copied(draft, used, syncDir) })
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		await.Beside(func() {
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
	// Until the name is on disk a power cut may bring the old file back, without anything that is receipted from here on.
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("write catalog %s anew: %w", dir, err), anew.Close())
	}
	return anew, nil
}

// fills returns how large the file is, and how many bytes of it are of use.
func (c *Catalog) fills() (size, used int64, err error) {
	err = c.view(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
	pages := c.db.Stats()
	return size, size - int64(pages.FreePageN+pages.PendingPageN)*int64(c.db.Info().PageSize), err
}

// copied writes the catalog into a draft, and opens that once it is whole and synced. used is how many of its bytes are
// of use.
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

// hasRoom returns ENOSPC if the disk of a directory has no room for so many bytes.
func hasRoom(dir string, bytes int64) error {
	var st unix.Statfs_t
	_, err := diskio.Retry(func() (int, error) { return 0, unix.Statfs(dir, &st) })
	if err == nil && int64(st.Bavail)*st.Bsize < bytes {
		err = unix.ENOSPC
	}
	return err
}
