package receiver

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// landing is one block on its way to disk. One goroutine calls its methods; after finish the committer owns it.
type landing interface {
	// data takes the next chunk, in the order of the members.
	data(member int, f wire.Frame) error
	// finish takes the closing frame. The block that it returns is complete but not yet durable.
	finish(f wire.Frame, r catalog.Record) (*landed, error)
	// abort removes what was written of the block.
	abort()
}

// landed is a complete block waiting for the commit that makes it durable. A stream of small blocks has thousands of them, so what few
// blocks need is behind the pointer, and small fields stand together.
type landed struct {
	catalog.Record
	*lying
	segment *vault.Segment // to sync, for a block in the vault
	begin   int64          // where in the segment the block's bytes begin, a hello before them included
	fault   error

	looked  bool // the block was compared with what is here already
	already bool // the same content is here already: only the receipt is missing
	outdone bool // the node's own store has a newer version, which has no record
	awaits  bool // its first copy may be in the commit before this one, or may not be here at all
	fresh   bool // compared's state had nothing under its id
	stays   bool // its record is in force although it has a fault: the catalog's disk failed at the very end of the commit
	told    atomic.Bool

	transfer uint32
	compared int // the state of the catalog that it was compared with; 0: none

	packing packing // of a small block that becomes files later

	disowned error // why it was answered without its disk; guarded by committer.mu

	in       *inbound   // the stream that it came by, which owes its verdict
	named    int64      // bytes of its opening
	beside   int64      // room that is set aside beside its bytes
	room     *allotment // the allotment that its bytes are taken from
	promised func()     // gives back its part of the quota
}

// lying is where a block is to lie. The blocks that a stream appends to one segment share one.
type lying struct {
	dirs   []string         // blocks with the same directories are committed together
	store  *inventory.Store // of a block in place; nil: it lies in the vault
	files  []stagedFile     // to sync and to publish, for a block in place
	noRoom error            // no disk had room for it: its fault unless the same block is here already
}

// vaultLanding appends the frames of a block to a segment as they are. A stream has one, and uses it for one block
// after the other.
type vaultLanding struct {
	seg    *vault.Segment
	begin  int64 // of what was appended for the block
	offset int64
	open   int64

	packing packing
	lying   *lying

	spare []landed // for blocks to come: allocated landedTogether at a time
}

// landedTogether is how many blocks of a stream share one allocation. They are committed together, or nearly. So many fill the 4 KiB that
// are allocated.
const landedTogether = 11

// into begins a block's landing. If the block before it in the segment came from another node, it first writes the
// sender's name into the segment: frames do not name their sender, and if the catalog is lost it is made anew from the
// segments.
func (l *vaultLanding) into(seg *vault.Segment, from string, f wire.Frame) error {
	lies := l.lying
	if l.seg != seg {
		lies = &lying{dirs: seg.In}
	}
	*l = vaultLanding{seg: seg, begin: seg.End, open: int64(len(f.Raw)), lying: lies, spare: l.spare}
	if seg.From != from {
		if err := seg.Append(wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: from}.Append(nil))); err != nil {
			return err
		}
		seg.From = from
	}
	l.offset = seg.End
	return seg.Append(f.Raw)
}

func (l *vaultLanding) data(_ int, f wire.Frame) error { return l.seg.Append(f.Raw) }

func (l *vaultLanding) finish(f wire.Frame, r catalog.Record) (*landed, error) {
	if err := l.seg.Append(f.Raw); err != nil {
		return nil, err
	}
	r.Segment, r.Offset, r.OpenLen, r.Length = l.seg.No, l.offset, l.open, l.seg.End-l.offset
	if len(l.spare) == 0 {
		l.spare = make([]landed, landedTogether)
	}
	b := &l.spare[0]
	l.spare = l.spare[1:]
	b.Record, b.lying, b.segment, b.begin, b.packing = r, l.lying, l.seg, l.begin, l.packing
	return b, nil
}

func (l *vaultLanding) abort() { l.seg.Forget(l.begin) }

// stagedFile is a member under a temporary name beside its place.
type stagedFile struct {
	root     int
	from, to string
	last     bool // gets its name after the others
	named    bool

	unflushed int64 // bytes that the disk had not begun to write when the last byte came
}

// placeLanding writes the members of a block to temporary files in the store that it belongs to.
type placeLanding struct {
	store   *inventory.Store
	opening wire.Opening
	work    *diskio.Work // of the writing goroutine: it is told which disk the landing is at
	files   []stagedFile
	placed  []catalog.Placed
	current *os.File
	written int64 // to current
	behind  *diskio.WriteBehind
	member  int
}

// landInPlace begins a block's landing in its store, each member in the directory given. It fails with errOccupied where a
// file is in the way, and with errApart where a file cannot be moved from the staging directory to its place.
func landInPlace(s *inventory.Store, o wire.Opening, roots []int, c *catalog.Catalog, w *diskio.Work) (*placeLanding, error) {
	l := &placeLanding{store: s, opening: o, work: w, member: -1}
	id := inventory.BlockID(o.ID)
	for i, m := range o.Members {
		root := roots[i]
		_, to := s.Shape.Place(s, id, m.Name)
		if to == inventory.StagingDir || strings.HasPrefix(to, inventory.StagingDir+"/") {
			return nil, fmt.Errorf("%s: %w", to, errOccupied)
		}
		for i := range s.Roots { // the same name in another directory would hide this one
			w.Begin(&s.Paths[i])
			if err := vacant(s, id, c, place{i, to}); err != nil {
				return nil, err
			}
		}
		w.Begin(&s.Paths[root])
		if isApart(s, place{root, to}) {
			return nil, fmt.Errorf("%s: %w", path.Join(s.Paths[root], to), errApart)
		}
		l.files = append(l.files, stagedFile{root: root, from: path.Join(inventory.StagingDir, rand.Text()), to: to, last: s.Shape.Last(m.Name)})
		l.placed = append(l.placed, catalog.Placed{Root: root, Path: to})
	}
	if err := l.reach(0); err != nil {
		l.abort()
		return nil, err
	}
	return l, nil
}

// reach makes the file of a member the current one, and on the way makes the files of the empty members before it.
func (l *placeLanding) reach(member int) error {
	for l.member < member {
		if err := l.closeCurrent(); err != nil {
			return err
		}
		l.member++
		l.work.Begin(l.at())
		f := l.files[l.member]
		if err := makeDir(l.store, f.root, inventory.StagingDir); err != nil {
			return err
		}
		w, err := l.store.Roots[f.root].OpenFile(f.from, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		l.current, l.written, l.behind = w, 0, &diskio.WriteBehind{}
		if err := giveToOwner(l.store, w, f.root); err != nil {
			return err
		}
	}
	return nil
}

// closeCurrent notes the modification time that the file system keeps, which may be coarser than the sender's: by that
// time the file is recognised later.
func (l *placeLanding) closeCurrent() error {
	if l.current == nil {
		return nil
	}
	defer func() { l.current = nil }()
	l.files[l.member].unflushed = l.written - l.behind.Begun
	when := time.Unix(0, l.opening.ModTime)
	if err := l.store.Roots[l.files[l.member].root].Chtimes(l.files[l.member].from, when, when); err != nil {
		return errors.Join(err, l.current.Close())
	}
	info, err := l.current.Stat()
	if err != nil {
		return errors.Join(err, l.current.Close())
	}
	l.placed[l.member].ModTime = info.ModTime().UnixNano()
	return l.current.Close()
}

func (l *placeLanding) data(member int, f wire.Frame) error {
	if err := l.reach(member); err != nil {
		return err
	}
	l.placed[member].Chunks = binary.BigEndian.AppendUint32(l.placed[member].Chunks, f.Sum)
	n, err := l.current.Write(f.Payload)
	if err != nil {
		return err
	}
	l.written += int64(n)
	return l.behind.Wrote(l.current, l.written)
}

func (l *placeLanding) finish(_ wire.Frame, r catalog.Record) (*landed, error) {
	if err := errors.Join(l.reach(len(l.files)-1), l.closeCurrent()); err != nil {
		return nil, err
	}
	r.Placed = l.placed
	return &landed{Record: r, lying: &lying{dirs: l.dirs(), store: l.store, files: l.files}}, nil
}

// at is the store's directory that the current member is written to.
func (l *placeLanding) at() *string { return &l.store.Paths[l.files[max(0, l.member)].root] }

// dirs are the store's directories that the block lies in.
func (l *placeLanding) dirs() (dirs []string) {
	for _, f := range l.files {
		dirs = append(dirs, l.store.Paths[f.root])
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func (l *placeLanding) abort() {
	if l.current != nil {
		l.current.Close()
	}
	for _, f := range l.files[:l.member+1] {
		l.work.Begin(&l.store.Paths[f.root])
		_ = l.store.Roots[f.root].Remove(f.from) // the sweep at the next start finds what stays
	}
}

// makeDir makes directories below one of the store's directories, with the same owner.
func makeDir(s *inventory.Store, root int, dir string) error {
	if _, err := s.Roots[root].Stat(dir); err == nil {
		return nil
	}
	if parent := path.Dir(dir); parent != "." {
		if err := makeDir(s, root, parent); err != nil {
			return err
		}
	}
	if err := s.Roots[root].Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	uid, gid, ok := ownerOf(s, root)
	if !ok {
		return nil
	}
	return s.Roots[root].Chown(dir, uid, gid)
}

// giveToOwner gives a landed file to the owner of the store's directory, so that the engine whose store it is may read and remove
// it.
func giveToOwner(s *inventory.Store, f *os.File, root int) error {
	uid, gid, ok := ownerOf(s, root)
	if !ok {
		return nil
	}
	return f.Chown(uid, gid)
}

func ownerOf(s *inventory.Store, root int) (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	info, err := s.Roots[root].Stat(".")
	if err != nil {
		return 0, 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// sweepStaging removes the files that a crash left in the staging directories, after finishIntents has read the intents among them. The
// directory itself stays: it shows that blocks have landed here.
func sweepStaging(s *inventory.Store) error {
	var errs []error
	for _, r := range s.Roots {
		left, err := entriesIn(r, inventory.StagingDir)
		for _, e := range left {
			err = errors.Join(err, r.RemoveAll(path.Join(inventory.StagingDir, e.Name())))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("store %s: clear %s: %w", s.Name, inventory.StagingDir, err))
		}
	}
	return errors.Join(errs...)
}

func entriesIn(r *os.Root, dir string) ([]fs.DirEntry, error) {
	d, err := r.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}
