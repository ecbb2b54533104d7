package migration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"
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
	if err := errors.Join(v.recover(), syncDir(dir)); err != nil {
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
	for no := range ends {
		v.last = max(v.last, no) // even if its file is gone: its number must not come to mean other bytes
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
// store. With an error comes the id of the block that it is about, if it is about one.
func (v *Vault) blocks() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for r, err := range v.catalog.all() {
			switch {
			case err != nil:
				if !yield(Item{Block: Block{ID: BlockID(r.ID)}}, err) {
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

// carried yields the blocks of the vault, but for those that came back to where they had once left from and that a store
// of this node has itself: a block is carried once, and the store's version is the one that its engine knows.
func (v *Vault) carried(stores []*Store) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for it, err := range v.blocks() {
			if err == nil {
				own, found := findIn(stores, it.ID)
				switch {
				case found != nil:
				case own.Bytes() == it.Bytes() && own.modified().Equal(it.modified()):
					continue
				default:
					it.Skip = "the node's own store has it, in another version"
				}
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

func findIn(stores []*Store, id BlockID) (Block, error) {
	for _, s := range stores {
		if s.Name == id.Store() {
			return s.Find(id)
		}
	}
	return Block{}, fs.ErrNotExist
}

func (r record) block() Block {
	b := Block{ID: BlockID(r.ID), Kind: r.Kind, Layout: r.Layout}
	for _, m := range r.Members {
		b.Members = append(b.Members, Member{Name: m.Name, Bytes: m.Bytes, ModTime: time.Unix(0, r.ModTime), root: inVault, ctim: r.Landed.UnixNano()})
	}
	return b
}

// find returns a block whose bytes are in a segment.
func (v *Vault) find(id BlockID) (Block, error) {
	r, err := v.catalog.get(id)
	if err == nil && r.Segment == 0 {
		err = fs.ErrNotExist
	}
	return r.block(), err
}

// reader reads one member of a block in the vault. It makes sure that what begins there is that block, and verifies each
// chunk before it hands out a byte of it.
func (v *Vault) reader(r record, member int) (*chunkReader, error) {
	f, err := os.Open(v.segmentPath(r.Segment))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("block %s: its segment is gone: %w", r.ID, errCorrupt)
		}
		return nil, err
	}
	open := newFrameReader(io.NewSectionReader(f, r.Offset, r.OpenLen), int(r.OpenLen)-headerBytes)
	if begins, err := open.next(); err != nil || begins.typ != frameOpen || !bytes.HasPrefix(begins.payload, appendString(nil, r.ID)) {
		f.Close()
		return nil, fmt.Errorf("block %s does not begin at byte %d of segment %d: %w", r.ID, r.Offset, r.Segment, errCorrupt)
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
