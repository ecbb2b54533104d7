package vault

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Vault is where landed blocks rest that have no place in a store: append-only segments of frames exactly as they came over
// the wire, and the catalog of everything that landed here, in the vault or in place. The catalog lies in the first of the
// vault's directories, segments in any.
//
// A segment has one writer at a time. Bytes behind the end that the catalog knows were never receipted, and are cut off
// when the segment's directory is opened.
type Vault struct {
	diskio.Watched

	Dir     string               // the first of the directories
	Catalog *catalog.Catalog     // Close closes it
	Flush   func(*os.File) error // makes a segment's bytes durable
	Unread  Unread               // landed blocks that are yet to be read back

	mu    sync.Mutex
	dirs  []*vaultDir
	homes map[uint32]home // of every segment
	last  uint32          // highest segment number in use

	remade []Remade        // what TakeRemade has not returned yet
	unread map[uint32]bool // segments that may have blocks which are not in the catalog: their disk does not give them

	hung    map[string]<-chan struct{} // by directory: closed when a reclaim that hangs there comes back
	writing map[uint32]*Segment        // segments that are open for appending
	reading map[uint32]int             // by segment: how many read it
	moving  map[inventory.BlockID]int  // by block in place: how many are naming its files; -1: they are being removed
}

// Open opens the vault in dir, creating it when needed, and cuts off bytes that no receipt was ever sent for. more are
// further directories for segments. A directory that is gone or does not answer is passed by: its blocks are not held
// until it is back (Away, Revive).
func Open(dir string, more ...string) (*Vault, error) {
	if err := os.MkdirAll(filepath.Join(dir, "segments"), 0o700); err != nil {
		return nil, fmt.Errorf("open vault: %w", err)
	}
	all := slices.Compact(diskio.Cleaned(append([]string{dir}, more...)))
	c, ruined, err := catalog.Open(dir, all, func() bool { return anySegments(all) })
	if err != nil {
		return nil, err
	}
	v := &Vault{Dir: filepath.Clean(dir), Catalog: c, Flush: fdatasync, homes: map[uint32]home{}, unread: map[uint32]bool{},
		hung: map[string]<-chan struct{}{}, writing: map[uint32]*Segment{}, reading: map[uint32]int{}, moving: map[inventory.BlockID]int{}}
	if ruined != nil {
		v.remade = []Remade{{Ruin: ruined}}
	}
	for _, p := range all {
		if !slices.ContainsFunc(v.dirs, func(d *vaultDir) bool { return d.path == p }) {
			v.dirs = append(v.dirs, &vaultDir{path: p, away: diskio.Silence(p)})
		}
	}
	ends, err := c.SegmentEnds()
	for no, end := range ends {
		v.last = max(v.last, no) // even if its file is gone: the number must not come to mean other bytes
		v.homes[no] = home{dir: cmp.Or(end.Dir, v.Dir)}
	}
	if yet, err := c.YetToSalvage(); err == nil && yet {
		v.last += numbersAside
	}
	if err = cmp.Or(err, v.openFirst()); err != nil {
		return nil, errors.Join(fmt.Errorf("open vault %s: %w", dir, err), c.Close())
	}
	late, cancel := context.WithTimeout(context.Background(), diskio.OpenPatience)
	defer cancel()
	v.Revive(late)
	return v, nil
}

// Watch sets what tells whether the disks of the vault's directories answer.
func (v *Vault) Watch(d diskio.Disks) {
	v.Watched.Watch(d)
	v.Catalog.Watch(d)
}

// Close closes the vault. No receiver may be using it.
func (v *Vault) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, d := range v.dirs {
		for _, s := range d.free {
			errs = append(errs, s.shut())
		}
		d.free = nil
	}
	return errors.Join(append(errs, v.Catalog.Close())...)
}

// SegmentFile is the file of a segment in one of the directories.
func SegmentFile(dir string, no uint32) string {
	return filepath.Join(dir, "segments", fmt.Sprintf("seg-%08d", no))
}

// Held yields every block that landed here from another node, except those in directories that are away.
func (v *Vault) Held() iter.Seq2[Held, error] {
	return v.held(func(r catalog.Record) bool {
		if r.Segment == 0 {
			return true
		}
		_, err := v.Home(r.Segment)
		return err == nil
	})
}

// HeldIn yields the blocks whose segments lie in a directory.
func (v *Vault) HeldIn(dir string) iter.Seq2[Held, error] {
	return v.held(func(r catalog.Record) bool {
		if r.Segment == 0 {
			return false
		}
		at, err := v.Home(r.Segment)
		return err == nil && at == dir
	})
}

func (v *Vault) held(is func(catalog.Record) bool) iter.Seq2[Held, error] {
	return func(yield func(Held, error) bool) {
		for r, err := range v.Catalog.All() {
			if err != nil {
				if !yield(Held{}, err) {
					return
				}
				continue
			}
			if is(r) && !yield(HeldOf(r), nil) {
				return
			}
		}
	}
}

// Held is a block that landed here from another node.
type Held struct {
	ID     inventory.BlockID
	Bytes  int64
	From   string // the node that it was carried from
	Origin string // the node that it was born on

	Packed bool // it is in a segment
}

// HeldOf is the block of a record.
func HeldOf(r catalog.Record) Held {
	return Held{inventory.BlockID(r.ID), r.Bytes(), r.From, r.Origin, r.Segment != 0}
}

// App is the app that a block belongs to, "" where its id names none.
func (h Held) App() string { return h.ID.App() }

// Count returns how much rests here from other nodes, in segments and in place.
func (v *Vault) Count() inventory.Count { return v.Catalog.Count() }

// Takes returns how many bytes of the disks that takes.
func (v *Vault) Takes() int64 { return v.Catalog.Takes() }

// Block describes a block in a segment. Its members' path is the directory of the vault that the segment lies in.
func (v *Vault) Block(r catalog.Record) inventory.Block {
	dir, _ := v.Home(r.Segment)
	b := inventory.Block{ID: inventory.BlockID(r.ID), Kind: r.Kind, Layout: r.Layout, Value: time.Duration(r.Value) * time.Millisecond, Origin: r.Origin, Traced: true}
	for _, m := range r.Members {
		b.Members = append(b.Members, inventory.Member{
			Name: m.Name, Bytes: m.Bytes, ModTime: time.Unix(0, r.ModTime), Root: inventory.InVault,
			Path: dir, ChangeTime: r.Landed.UnixNano(),
		})
	}
	return b
}

// Unreadable returns a stand-in for a block whose record cannot be read: some node sent it, and it lies somewhere in the
// vault.
func (v *Vault) Unreadable(r catalog.Record) inventory.Block {
	return inventory.Block{ID: inventory.BlockID(r.ID), Members: []inventory.Member{{Root: inventory.InVault, Path: v.Dir}}, Origin: "?", Traced: true}
}

// Find returns a block whose bytes are in a segment.
func (v *Vault) Find(id inventory.BlockID) (inventory.Block, error) {
	r, err := v.Catalog.Get(id)
	if err == nil && r.Segment == 0 {
		err = fs.ErrNotExist
	}
	return v.Block(r), err
}

// member opens one member of a block in the vault for reading. It makes sure that the block begins where its record
// says, and verifies each chunk before it hands out a byte of it.
func (v *Vault) member(r catalog.Record, member int, ahead int64) (_ *chunkReader, err error) {
	dir, err := v.Home(r.Segment)
	if err = cmp.Or(err, v.Readable(dir)); err != nil {
		return nil, err
	}
	done := v.Read(r.Segment)
	defer func() {
		if err != nil {
			done()
		}
	}()
	f, err := os.Open(SegmentFile(dir, r.Segment))
	if now, gone := v.Catalog.Get(inventory.BlockID(r.ID)); gone != nil || now.Segment != r.Segment || now.Offset != r.Offset {
		if err == nil {
			f.Close()
		}
		err = cmp.Or(gone, fs.ErrNotExist) // removed or moved before Read kept its bytes there
		return nil, err
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("block %s: %w", r.ID, v.lacks(r.Segment, dir))
		}
		return nil, err
	}
	diskio.PrefetchMissing(int(f.Fd()), r.Offset, ahead)
	open := make([]byte, r.OpenLen)
	if _, err := f.ReadAt(open, r.Offset); err != nil || !opens(open, r.ID) {
		f.Close()
		err = errElsewhere(&r)
		return nil, err
	}
	c := newChunkReader(f, r.Members[member].Bytes, framedChunks{at: framesOf(&r, member)}, ahead)
	c.done = done
	return c, nil
}

// framesOf is where in its segment the frames of a member begin.
func framesOf(r *catalog.Record, member int) int64 {
	at := r.Offset + r.OpenLen
	for _, m := range r.Members[:member] {
		at += m.Bytes + wire.Chunks(m.Bytes)*wire.HeaderBytes
	}
	return at
}

// errElsewhere says that a segment does not have a block where its record says.
func errElsewhere(r *catalog.Record) error {
	return fmt.Errorf("block %s does not begin at byte %d of segment %d: %w", r.ID, r.Offset, r.Segment, wire.ErrCorrupt)
}

// opens reports whether a frame is the opening of the block of that id.
func opens(raw []byte, id string) bool {
	return len(raw) >= wire.HeaderBytes && wire.IsFrame(wire.FrameOpen, raw[:wire.HeaderBytes], raw[wire.HeaderBytes:]) && bytes.HasPrefix(raw[wire.HeaderBytes:], fields.AppendString(nil, id))
}
