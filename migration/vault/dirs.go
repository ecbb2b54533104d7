package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// vaultDir is one of a vault's directories.
type vaultDir struct {
	path    string
	away    error      // why the directory is not used; nil: it is used
	looking bool       // a goroutine opens it, and may hang there with its disk
	free    []*Segment // open for appending, no writer now

	segments fs.FileInfo // of its subdirectory of segments, once it has been looked at; nil: not yet
}

// home is the directory of a segment. seen: its file was met there; else only the catalog names the directory.
type home struct {
	dir  string
	seen bool
}

// Away returns, for each directory that is not used, why it is not.
func (v *Vault) Away() map[string]error {
	v.mu.Lock()
	defer v.mu.Unlock()
	away := map[string]error{}
	for _, d := range v.dirs {
		if d.away != nil {
			away[d.path] = d.away
		}
	}
	return away
}

// Revive opens the directories that are not used, and returns those that are used from now on. It waits for their disks
// while ctx lasts.
func (v *Vault) Revive(ctx context.Context) (back []string) {
	type answer struct {
		dir *vaultDir
		err error
	}
	v.mu.Lock()
	var ask []*vaultDir
	for _, d := range v.dirs {
		if d.away != nil && !d.looking && v.Readable(d.path) == nil {
			d.looking = true
			ask = append(ask, d)
		}
	}
	v.mu.Unlock()
	answers := make(chan answer, len(ask)) // buffered, so that an opener that comes late does not block
	for _, d := range ask {
		go func() { answers <- answer{d, v.open(d)} }()
	}
	for range ask {
		select {
		case a := <-answers:
			if a.err == nil {
				back = append(back, a.dir.path)
			}
		case <-ctx.Done():
			return back
		}
	}
	return back
}

// Usable are the directories that may be used now.
func (v *Vault) Usable() (paths []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.dirs {
		if d.away == nil {
			paths = append(paths, d.path)
		}
	}
	return paths
}

// Paths are the vault's directories.
func (v *Vault) Paths() (paths []string) {
	for _, d := range v.dirs {
		paths = append(paths, d.path)
	}
	return paths
}

func (v *Vault) placeOf(dir string) *vaultDir {
	for _, d := range v.dirs {
		if d.path == dir {
			return d
		}
	}
	return nil
}

// Home returns the directory of a segment, with an error if the directory cannot be used now.
func (v *Vault) Home(no uint32) (dir string, err error) {
	v.mu.Lock()
	dir = cmp.Or(v.homes[no].dir, v.Dir)
	d := v.placeOf(dir)
	if d != nil {
		err = d.away
	}
	v.mu.Unlock()
	switch {
	case d == nil:
		err = diskio.Away(fmt.Errorf("segment %d lies in %s, which is none of the vault's directories now", no, dir))
	case err != nil && !diskio.IsSilent(err):
		err = diskio.Away(fmt.Errorf("%s cannot be used: %v", dir, err)) // %v: a directory's fs.ErrNotExist is not a block's
	}
	return dir, err
}

// open makes a directory ready for use.
func (v *Vault) open(d *vaultDir) error {
	err := v.recover(d)
	v.mu.Lock()
	defer v.mu.Unlock()
	d.away, d.looking = err, false
	if err != nil {
		d.segments = nil
	}
	return err
}

// distinct returns an error if a directory's segments are those of another directory in use, by a link or because one disk is
// mounted twice: each would remove the other's segments as strays.
func (v *Vault) distinct(d *vaultDir) error {
	segments, err := os.Stat(filepath.Join(d.path, "segments"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, other := range v.dirs {
		if other != d && other.segments != nil && os.SameFile(other.segments, segments) {
			return fmt.Errorf("%s is the same directory as %s: name one of them alone", d.path, other.path)
		}
	}
	d.segments = segments
	return nil
}

// recover learns which segments lie in a directory, and cuts each off at the end that the catalog knows.
func (v *Vault) recover(d *vaultDir) error {
	dir := d.path
	if err := v.distinct(d); err != nil {
		return err
	}
	if all, some, err := v.Catalog.ToSalvage(dir); err != nil {
		return err
	} else if all || len(some) > 0 {
		if first, _, err := v.Catalog.ToSalvage(v.Dir); dir != v.Dir && (err != nil || first) { // of two segments of one number the first directory's counts
			return cmp.Or(err, diskio.Away(fmt.Errorf("%s is read for the new catalog after %s", dir, v.Dir)))
		}
		if err := v.salvage(dir, all, some); err != nil {
			return err
		}
	}
	ends, err := v.Catalog.SegmentEnds()
	if err != nil {
		return err
	}
	entries, err := v.list(dir, ends)
	if err = cmp.Or(err, v.distinct(d)); err != nil { // a second time, for list may just have made its subdirectory
		return err
	}
	if v.strange(dir, entries, ends) {
		if err := v.Catalog.Salvage(dir); err != nil {
			return err
		}
		if err := v.salvage(dir, true, nil); err != nil {
			return err
		}
		if ends, err = v.Catalog.SegmentEnds(); err != nil {
			return err
		}
	}
	for _, e := range entries {
		no, ok := segmentNumber(e.Name())
		if !ok {
			continue
		}
		end := ends[no]
		if !v.claim(no, dir, end) {
			if err := v.removeStray(no, dir); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		// A file shorter than that means that the disk lost bytes which it had promised to keep, for the catalog is
		// synced after the segment. Readers find its blocks corrupt; the rest of the segment still serves.
		if info.Size() > end.At || reservedBehind(info) {
			if err := os.Truncate(SegmentFile(dir, no), min(info.Size(), end.At)); err != nil {
				return err
			}
		}
	}
	return durable.SyncDir(dir)
}

// strange reports whether the segments in a directory are of a time before the catalog: the catalog was made while the directory's disk was
// not mounted, or the disk comes from another machine. What a crash leaves of the first segment in a directory looks the same.
func (v *Vault) strange(dir string, entries []os.DirEntry, ends map[uint32]catalog.End) (is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, end := range ends {
		if end.Dir == dir {
			return false
		}
	}
	for _, e := range entries {
		if no, ok := segmentNumber(e.Name()); ok {
			if ends[no].At > 0 && !v.homes[no].seen {
				return false // the directory had another path
			}
			is = dir != v.Dir
		}
	}
	return is
}

// reservedBehind reports whether a file has disk space far behind its end.
func reservedBehind(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Blocks*512 > info.Size()+reserveBytes/8 // a file system counts the blocks that say where a file lies, too
}

// list reads the names in a directory of segments. If the catalog knows segments there, a missing directory is not made anew,
// and one with none of them is not used: its disk is not mounted, and new segments would land on another.
func (v *Vault) list(dir string, ends map[uint32]catalog.End) ([]os.DirEntry, error) {
	segments := filepath.Join(dir, "segments")
	entries, err := os.ReadDir(segments)
	if err == nil {
		return entries, v.deserted(dir, entries, ends)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, end := range ends {
		if end.Dir == dir {
			return nil, err
		}
	}
	return nil, os.MkdirAll(segments, 0o700)
}

// deserted returns an awayError if the catalog has blocks in segments of a directory and none of the files there is a segment
// that it knows. The first directory has the catalog, so its disk is there.
func (v *Vault) deserted(dir string, entries []os.DirEntry, ends map[uint32]catalog.End) error {
	if dir == v.Dir {
		return nil
	}
	for _, e := range entries {
		if no, ok := segmentNumber(e.Name()); ok && ends[no].At > 0 { // it may be another directory's, whose disk is mounted here now
			return nil
		}
	}
	laden, err := v.Catalog.Laden()
	if err != nil {
		return err
	}
	for no, end := range ends {
		if at, _ := v.Home(no); laden[no] && at == dir && end.Dir == dir {
			return diskio.Away(fmt.Errorf("%s has none of the segments that blocks lie in, as if its disk were not mounted; if they are gone for good: touch %s", dir, SegmentFile(dir, no)))
		}
	}
	return nil
}

// lacks returns the error for the blocks of a segment whose file is missing: its directory is away, or the blocks are
// gone.
func (v *Vault) lacks(no uint32, dir string) error {
	if entries, err := os.ReadDir(filepath.Join(dir, "segments")); err == nil || errors.Is(err, fs.ErrNotExist) {
		ends, err := v.Catalog.SegmentEnds()
		if err = cmp.Or(err, v.deserted(dir, entries, ends)); err != nil {
			return err
		}
	}
	return fmt.Errorf("segment %d is gone: %w", no, wire.ErrCorrupt)
}

// removeStray removes a segment's file that is of no use in a directory, unless another directory uses that very file.
func (v *Vault) removeStray(no uint32, dir string) error {
	if at, err := v.Home(no); at != dir {
		if err = cmp.Or(err, v.Readable(at)); err != nil {
			return nil // it cannot be told now whether they are one file
		}
		stray, err := os.Stat(SegmentFile(dir, no))
		used, unused := os.Stat(SegmentFile(at, no))
		if err == nil && unused == nil && os.SameFile(stray, used) {
			return nil
		}
	}
	return durable.Remove(SegmentFile(dir, no))
}

// claim notes that a segment's file was met in a directory. It reports false if the file is of no use there: it was never
// committed, or while the directory was away its number was given to a segment elsewhere.
func (v *Vault) claim(no uint32, dir string, end catalog.End) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = max(v.last, no)
	if end.At == 0 {
		return false
	}
	if at := cmp.Or(end.Dir, v.Dir); at != dir && v.homes[no].seen {
		return false
	}
	v.homes[no] = home{dir, true} // the disk may be mounted elsewhere than the catalog says: its segments are where they are met
	return true
}
