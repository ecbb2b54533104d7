package reading

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// openOwn opens a block of the node's own, as its engine wrote it. Only the file system vouches for its bytes.
func openOwn(s *inventory.Store, id inventory.BlockID) (*content, error) {
	b, err := s.Find(id)
	if err != nil {
		return nil, err
	}
	if b.ID == id && len(b.Members) > 1 {
		e := &inventory.MembersError{}
		for _, m := range b.Members {
			e.Add(id.Sibling(m.Name), m.Bytes)
		}
		return nil, e
	}
	for _, m := range b.Members {
		if b.ID != id && m.Name != id.Name() {
			continue
		}
		f, err := openFile(s, m)
		if err != nil {
			return nil, err
		}
		m = f.is
		return &content{ReadSeekCloser: f, etag: inventory.TagPrefix(m.Bytes, m.ModTime.UnixNano()) + fmt.Sprintf(`%x"`, m.ChangeTime), modified: m.ModTime, dir: s.Paths[m.Root]}, nil
	}
	return nil, fs.ErrNotExist
}

// ownFile is an engine's file that the engine may write anew in place while it is read: its reader would get the beginning of one
// version and the end of another, and take that for whole. A file that was removed or replaced meanwhile is read on as it was.
type ownFile struct {
	*os.File
	is inventory.Member // as it was when it was opened
}

// openFile opens the file that has a member's name now, which may be another version than the one seen.
func openFile(s *inventory.Store, seen inventory.Member) (*ownFile, error) {
	f, err := s.Open(seen)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		seen, err = inventory.MemberOf(seen.Root, seen.Path, seen.Name, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &ownFile{f, seen}, nil
}

// Read returns ErrChanged for bytes that may be of another version.
func (f *ownFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if changed := inventory.StillSame(f.File, f.is); changed != nil {
		return 0, changed
	}
	return n, err
}
