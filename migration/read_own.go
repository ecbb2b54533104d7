package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ownTag begins the ETag of a file that nothing vouches for but the file system. What follows is when its inode changed,
// which stays behind when the block moves.
func ownTag(bytes, modified int64) string { return fmt.Sprintf(`"file-%x-%x-`, bytes, modified) }

// openOwn opens a block of the node's own, as its engine wrote it. Nothing vouches for its bytes but the file system.
func (s *Store) openOwn(id BlockID) (*content, error) {
	b, err := s.Find(id)
	if err != nil {
		return nil, err
	}
	if b.ID == id && len(b.Members) > 1 {
		e := &membersError{}
		for _, m := range b.Members {
			e.add(id.sibling(m.Name), m.Bytes)
		}
		return nil, e
	}
	for _, m := range b.Members {
		if b.ID != id && m.Name != id.Name() {
			continue
		}
		f, err := s.openFile(m)
		if err != nil {
			return nil, err
		}
		m = f.is
		return &content{ReadSeekCloser: f, etag: ownTag(m.Bytes, m.ModTime.UnixNano()) + fmt.Sprintf(`%x"`, m.ctim), modified: m.ModTime, dir: s.Paths[m.root]}, nil
	}
	return nil, fs.ErrNotExist
}

// ownFile is a file of an engine's, which may write it anew where it is while it is read: a reader would be given how one version begins
// and how another ends, and took it for whole. What was removed or replaced meanwhile is read on, as it was.
type ownFile struct {
	*os.File
	is Member // since it was opened
}

// openFile opens what has a member's name now, which may be another version than the one that was seen.
func (s *Store) openFile(seen Member) (*ownFile, error) {
	f, err := s.open(seen)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		seen, err = memberOf(seen.root, seen.path, seen.Name, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &ownFile{f, seen}, nil
}

// Read returns errChanged for bytes that may be of another version.
func (f *ownFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if changed := stillSame(f.File, f.is); changed != nil {
		return 0, changed
	}
	return n, err
}
