package migration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
)

// Vault is where landed blocks rest when their store does not want them in place: append-only segments of frames exactly
// as they came over the wire, and the catalog of everything that landed here, in the vault or in place.
//
// A segment has one writer at a time. What lies behind the end that the catalog knows of was never receipted and is cut
// off when the vault is opened.
type Vault struct {
	dir     string
	catalog *catalog

	mu   sync.Mutex
	free []*segment // open for appending, no writer now
	last uint32     // highest segment number in use
}

// segmentBytes is the size at which a segment gets no further block. 256 MiB keeps their number small and lets space come
// back in useful pieces.
const segmentBytes = 256 << 20

// segment is open for appending.
type segment struct {
	no  uint32
	f   *os.File
	w   *bufio.Writer
	end int64 // of what was appended, flushed or not

	users  int  // its writer and each commit under way, guarded by Vault.mu
	closed bool // takes no further block
}

// OpenVault opens the vault in dir, creating it when needed, and cuts off what no receipt was ever sent for.
func OpenVault(dir string) (*Vault, error) {
	if err := os.MkdirAll(filepath.Join(dir, "segments"), 0o700); err != nil {
		return nil, fmt.Errorf("open vault: %w", err)
	}
	c, err := openCatalog(dir)
	if err != nil {
		return nil, err
	}
	v := &Vault{dir: dir, catalog: c}
	if err := v.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open vault %s: %w", dir, err), c.close())
	}
	return v, nil
}

// Close closes the vault. No receiver may be using it.
func (v *Vault) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, s := range v.free {
		errs = append(errs, s.f.Close())
	}
	v.free = nil
	return errors.Join(append(errs, v.catalog.close())...)
}

func (v *Vault) segmentPath(no uint32) string {
	return filepath.Join(v.dir, "segments", fmt.Sprintf("seg-%08d", no))
}

func (v *Vault) recover() error {
	ends, err := v.catalog.segmentEnds()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(v.dir, "segments"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		var no uint32
		if n, err := fmt.Sscanf(e.Name(), "seg-%08d", &no); n != 1 || err != nil {
			continue
		}
		v.last = max(v.last, no)
		p := v.segmentPath(no)
		end := ends[no]
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case end == 0:
			if err := removeIfThere(p); err != nil {
				return err
			}
		case info.Size() < end:
			// The catalog is synced after the segment, so this is a disk that lost what it had promised. The blocks are
			// found to be corrupt when they are read; the rest of the segment still serves.
		case info.Size() > end:
			if err := os.Truncate(p, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// acquire hands out a segment to append to.
func (v *Vault) acquire() (*segment, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.free); n > 0 {
		s := v.free[n-1]
		v.free = v.free[:n-1]
		s.users++
		return s, nil
	}
	no := v.last + 1
	f, err := os.OpenFile(v.segmentPath(no), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("new segment: %w", err)
	}
	if err := syncDir(filepath.Dir(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	v.last = no
	return &segment{no: no, f: f, w: bufio.NewWriterSize(f, 512<<10), users: 1}, nil
}

// release takes a segment back from its writer, which has flushed it. A full one, or one that failed, takes no more.
func (v *Vault) release(s *segment, failed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if failed || s.end >= segmentBytes {
		s.closed = true
	} else {
		v.free = append(v.free, s)
	}
	v.leave(s)
}

// use and done bracket a commit that will sync the segment.
func (v *Vault) use(s *segment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.users++
}

func (v *Vault) done(s *segment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leave(s)
}

func (v *Vault) leave(s *segment) {
	if s.users--; s.users == 0 && s.closed {
		s.f.Close() // all that it holds was synced, or never receipted
	}
}

// cut forgets what was appended from offset on: a block that was not finished.
func (s *segment) cut(offset int64) error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	if err := s.f.Truncate(offset); err != nil {
		return err
	}
	if _, err := s.f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	s.end = offset
	return nil
}

func (s *segment) append(raw []byte) error {
	n, err := s.w.Write(raw)
	s.end += int64(n)
	return err
}

// Held yields every block that landed here from another node.
func (v *Vault) Held() iter.Seq2[Held, error] {
	return func(yield func(Held, error) bool) {
		for r, err := range v.catalog.all() {
			if err != nil {
				if !yield(Held{}, err) {
					return
				}
				continue
			}
			if !yield(r.held(), nil) {
				return
			}
		}
	}
}

// Held is a block that landed here from another node.
type Held struct {
	ID    BlockID
	Bytes int64
	From  string
}

func (r record) held() Held { return Held{BlockID(r.ID), r.bytes(), r.From} }

// blocks yields what a drain must carry on: the blocks whose bytes are in segments. Those in place are found in their
// store.
func (v *Vault) blocks() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for r, err := range v.catalog.all() {
			switch {
			case err != nil:
				if !yield(Item{}, err) {
					return
				}
			case r.Segment != 0:
				if !yield(Item{Block: r.block()}, nil) {
					return
				}
			}
		}
	}
}

func (r record) block() Block {
	b := Block{ID: BlockID(r.ID), Kind: r.Kind, Layout: r.Layout}
	for _, m := range r.Members {
		b.Members = append(b.Members, Member{Name: m.Name, Bytes: m.Bytes, ModTime: r.Landed, root: -1, ctim: r.Landed.UnixNano()})
	}
	return b
}

// reader reads one member of a block in the vault, verifying each chunk before it hands out a byte of it.
func (v *Vault) reader(r record, member int) (*chunkReader, error) {
	f, err := os.Open(v.segmentPath(r.Segment))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("block %s: its segment is gone: %w", r.ID, errCorrupt)
		}
		return nil, err
	}
	start := r.Offset + r.OpenLen
	for _, m := range r.Members[:member] {
		start += m.Bytes + chunks(m.Bytes)*headerBytes
	}
	return newChunkReader(f, r.Members[member].Bytes, framedChunks{at: start}), nil
}

func chunks(bytes int64) int64 { return (bytes + ChunkBytes - 1) / ChunkBytes }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
