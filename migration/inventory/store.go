package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Kinds of stores, layouts and landings, in the words of the configuration.
const (
	KindCache   = "cache"
	KindShuffle = "shuffle"

	LayoutFiles = "files"
	LayoutSpark = "spark"

	LandPlace = "place"
	LandVault = "vault"
)

// StoreConfig names directories whose files the agent may carry.
type StoreConfig struct {
	Name   string
	Kind   string
	Layout string
	Land   string
	Paths  []string // ordered: where a landed block of Spark's belongs depends on the order

	// What a block is worth: the first hint that matches, else Value, else (0) what is usual for its kind.
	Value time.Duration
	Hints []Hint
}

// Store is a set of directories with a layout that says which files belong together.
type Store struct {
	StoreConfig
	Made []string // directories that were not there when it was opened
	diskio.Watched

	Shape    Layout
	Roots    []*os.Root  // its directories, in the order of Paths, as are the next two
	DirFiles []*os.File  // the same, for system calls
	AwayWhy  []error     // why one is taken for one without its disk; nil: it is not
	dead     []bool      // whether another stands in for one, for its disk could not be opened
	System   uint64      // the device of the system's disk
	traced   atomic.Bool // some files cannot be read without a trace

	replaced  atomic.Uint64           // the inode of what is in a directory's place, of which the log was told
	displaced atomic.Pointer[[]error] // of each directory, why nothing lands in it; nil: nobody has looked
	Comparing atomic.Bool             // a look of Compare's that hangs has not come back: its caller's note
	Cleared   sync.Map                // directories of accounts of which the log was told that most is deleted here: a drain's note, since each pass finds it anew

	seats atomic.Pointer[map[seatKey]seat] // that are certain

	mu     sync.Mutex
	seen   managers // of a store with Spark's layout, when it was last looked for a block
	seenAt time.Time
	seeing bool // somebody looks anew
}

// Layout is how a store's files form blocks.
type Layout interface {
	// Scan yields every block below the store's directories, and every file that is left alone with the reason.
	// A part of them is read by itself: one disk's if its blocks do not depend on others. What did not change since a look
	// before may be left out; an Item without an id then says no more than that the scan goes on.
	Scan(ctx context.Context, s *Store, part int, before Past, yield func(Item, error) bool) (more bool)
	Parts(s *Store) int
	// Find returns the block that an id names, or the block that the named file is a member of. fs.ErrNotExist if there
	// is none. It calls at with each of the store's directories before it looks there.
	Find(s *Store, id BlockID, at func(dir *string)) (Block, error)
	// Place says where a member of a landing block belongs: the directory's number and the path inside it.
	Place(s *Store, id BlockID, member string) (root int, path string)
	// Anywhere reports whether the member of a landing block may lie in any of the store's directories.
	Anywhere() bool
	// Made is the directory below the store's that is made for landing blocks of that scope alone; "": they lie among an
	// engine's own.
	Made(id BlockID) string
	// Last reports whether a member makes the others visible to the engine and so is published after them.
	Last(member string) bool
}

// Block is the unit that moves whole.
type Block struct {
	ID      BlockID
	Kind    string
	Layout  string
	Members []Member

	Value    time.Duration // what somebody said that it is worth; 0: nobody did
	Origin   string        // the node that it was born on, "" for this one, if it is traced
	Traced   bool
	Spare    bool // the node that it came from has it, too
	Outdated bool // that node has it as something else by now
}

// Member is one file of a block. Name is relative to the block's scope; for a block of one file it is the id's name.
type Member struct {
	Name    string
	Bytes   int64
	ModTime time.Time

	Root       int    // of the store's directories, or InVault
	Path       string // below that directory; of what is in the vault: the vault's directory
	ChangeTime int64  // change time, Unix nanoseconds: rises when a file is renamed into place
}

// Roster hands out lists of members to a goroutine that makes blocks in a row, most of them of one member: many lists share
// an allocation, which is felt with small blocks.
type Roster []Member

// Of is a list of n members.
func (r *Roster) Of(n int) []Member {
	if len(*r) < n {
		*r = make(Roster, max(n, 32))
	}
	some := (*r)[:n:n]
	*r = (*r)[n:]
	return some
}

// InVault is the root of members whose bytes are in the vault's segments.
const InVault = -1

// Bytes is the size of all members together.
func (b Block) Bytes() (n int64) {
	for _, m := range b.Members {
		n += m.Bytes
	}
	return n
}

// Changed is when the block changed last, at the latest.
func (b Block) Changed() (by int64) {
	for _, m := range b.Members {
		by = max(by, changedBy(m.ChangeTime))
	}
	return by
}

// Modified is when the newest of its members was modified.
func (b Block) Modified() (t time.Time) {
	for _, m := range b.Members {
		if m.ModTime.After(t) {
			t = m.ModTime
		}
	}
	return t
}

// Item is what a scan meets: a block to carry, or (Skip set) something that is left alone, and why, or (Stays set) data that
// cannot be carried, and what to do about it.
type Item struct {
	Block
	Skip    string
	Stays   string
	Stirred string // without a block: STORE/SCOPE/DIRECTORY, where something came or went since the look before
	Anew    bool   // its directory was not looked through before where it is: it may be news, whatever its times say
}

// Stranded says why a drain would lose what an inventory yields, whoever has room for it; directory, that it is not known what that is. "": it
// would not, for all that is known. A disk that does not answer may do so in time.
func Stranded(it Item, err error) (why string, directory bool) {
	dir, unlisted := errors.AsType[*UnlistedError](err)
	switch {
	case diskio.IsSilent(err):
	case unlisted:
		return fmt.Sprintf("%s: %v", dir.Path(), dir.Err), true
	case err != nil && it.ID != "":
		return fmt.Sprintf("%s: %v", it.ID, err), false
	case it.Stays != "":
		return fmt.Sprintf("%s: %s", it.ID, it.Stays), false
	}
	return "", false
}

// Carried reports whether it is a block to carry.
func (it Item) Carried() bool { return it.Skip == "" && it.Stays == "" }

// OpenStore opens a store's directories. A directory that does not exist yet is made: an engine may come later. One whose disk errs or
// does not answer is passed by until it is well: Away says why.
func OpenStore(cfg StoreConfig) (*Store, error) {
	cfg.Paths = diskio.Cleaned(cfg.Paths)
	s := &Store{StoreConfig: cfg}
	switch cfg.Layout {
	case LayoutFiles:
		s.Shape = FilesLayout{}
	case LayoutSpark:
		s.Shape = SparkLayout{}
	default:
		return nil, fmt.Errorf("store %s: unknown layout %q", cfg.Name, cfg.Layout)
	}
	var errs []error
	for _, o := range openRoots(cfg.Paths, diskio.OpenPatience) {
		if o.err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", cfg.Name, o.err))
			continue
		}
		if o.made {
			s.Made = append(s.Made, o.root.Name())
		}
		s.Roots, s.AwayWhy, s.dead = append(s.Roots, o.root), append(s.AwayWhy, o.why), append(s.dead, o.why != nil)
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, s.Close())...)
	}
	if info, err := os.Stat("/"); err == nil {
		s.System = deviceOf(info)
	}
	if err := s.openDirs(); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", cfg.Name, err), s.Close())
	}
	return s, nil
}

// StoreOf is the store that an id names; nil: it is none of these.
func StoreOf(stores []*Store, id BlockID) *Store {
	for _, s := range stores {
		if s.Name == id.Store() {
			return s
		}
	}
	return nil
}

// Close closes the store's directories.
func (s *Store) Close() error {
	errs := []error{s.closeDirs()}
	for _, r := range s.Roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Scan yields what a drain would carry, and what it would leave alone with the reason. An error names what could not be
// read, and comes with the block's id if it is about one; the scan goes on after it unless ctx has ended.
func (s *Store) Scan(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for part := range s.Shape.Parts(s) {
			if !s.Shape.Scan(ctx, s, part, Past{}, yield) {
				return
			}
		}
	}
}

// PartDirs are the directories that a part of the store lies in.
func (s *Store) PartDirs(part int) []string {
	if s.Shape.Parts(s) == 1 {
		return s.Paths
	}
	return s.Paths[part:][:1]
}

// Find returns the block that an id names, or that the named member belongs to.
func (s *Store) Find(id BlockID) (Block, error) { return s.Shape.Find(s, id, Nobody) }

// Nobody is who is told where a look is that nobody watches.
func Nobody(*string) {}

// ByName are the stores by their names.
func ByName(stores []*Store) map[string]*Store {
	all := make(map[string]*Store, len(stores))
	for _, s := range stores {
		all[s.Name] = s
	}
	return all
}

// Open does not wait for a writer, should the file have become a pipe since it was seen.
func (s *Store) Open(m Member) (*os.File, error) {
	if err := s.Readable(s.Paths[m.Root]); err != nil {
		return nil, err
	}
	return s.Roots[m.Root].OpenFile(m.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Readable returns a SilentError where a read may never come back, or where there is nothing to read from.
func (s *Store) Readable(path string) error {
	if i := slices.Index(s.Paths, path); i >= 0 && i < len(s.dead) && s.dead[i] {
		return diskio.Silence(path)
	}
	return s.Watched.Readable(path)
}

// Hollow reports whether there is nothing at all in one of its directories: a disk that was not mounted at boot looks like that.
func (s *Store) Hollow() bool {
	return slices.ContainsFunc(s.Roots, func(r *os.Root) bool {
		f, err := r.Open(".")
		if err != nil {
			return true
		}
		defer f.Close()
		names, _ := f.Readdirnames(1)
		return len(names) == 0
	})
}

// whole returns a SilentError while one of the store's disks does not answer: what is not found may be there.
func (s *Store) whole() error {
	for _, p := range s.Paths {
		if err := s.Readable(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) id(scope, name string) (BlockID, error) {
	return ParseBlockID(s.Name + "/" + scope + "/" + name)
}

func (s *Store) block(id BlockID, members ...Member) Block {
	return Block{ID: id, Kind: s.Kind, Layout: s.Layout, Members: members}
}

// Member describes a regular file; anything else is fs.ErrInvalid.
func (s *Store) Member(root int, p, name string) (Member, error) {
	info, err := s.Roots[root].Lstat(p)
	if err != nil {
		return Member{}, err
	}
	return MemberOf(root, p, name, info)
}

func notRegular(p string) error { return &fs.PathError{Op: "carry", Path: p, Err: fs.ErrInvalid} }

// MemberOf describes a regular file whose info is known; anything else is fs.ErrInvalid.
func MemberOf(root int, p, name string, info fs.FileInfo) (Member, error) {
	if !info.Mode().IsRegular() {
		return Member{}, notRegular(p)
	}
	m := Member{Name: name, Bytes: info.Size(), ModTime: info.ModTime(), Root: root, Path: p}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.ChangeTime = st.Ctim.Nano()
	}
	return m, nil
}

// StagingDir holds files on their way to their place, in each directory of a store that blocks land in. Scans pass it by.
const StagingDir = ".lifeboat-staging"

// skip makes the item for a file that is left alone. The id is made of what can be shown of its name.
func (s *Store) skip(root int, scope, p, why string, bytes int64) Item {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(p, "?"))
	return Item{Block: Block{ID: BlockID(s.Name + "/" + scope + "/" + name), Kind: s.Kind, Layout: s.Layout, Members: []Member{{Name: name, Bytes: bytes, Root: root}}}, Skip: why}
}

// Away says why a directory of the store's is taken for one without its disk; nil: it is not.
func (s *Store) Away(path string) error {
	if i := slices.Index(s.Paths, filepath.Clean(path)); i >= 0 && i < len(s.AwayWhy) {
		return s.AwayWhy[i]
	}
	return nil
}

// Device is the number of the device that one of its directories is on; 0: it cannot be told.
func (s *Store) Device(root int) uint64 {
	info, err := s.Roots[root].Stat(".")
	if err != nil {
		return 0
	}
	return deviceOf(info)
}

func deviceOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Dev
	}
	return 0
}
