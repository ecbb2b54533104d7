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
	Paths  []string // in this order SparkLayout numbers them to place a landed block

	// What a block is worth: by the first hint that matches, else Value, else (0) the usual value of its kind.
	Value time.Duration
	Hints []Hint
}

// Store is a set of directories with a layout that says which files belong together.
type Store struct {
	StoreConfig
	Made []string // directories that were not there when it was opened
	diskio.Watched

	Shape    Layout
	Roots    []*os.Root  // its directories, in the order of Paths, like the next three
	DirFiles []*os.File  // the same directories, for system calls
	AwayWhy  []error     // why a directory seems to be without its disk; nil: it does not
	dead     []bool      // a stand-in is open instead, because the disk could not be opened
	System   uint64      // the device of the system's disk
	traced   atomic.Bool // some files cannot be read without changing their access time

	replaced  atomic.Uint64           // the inode of the last replacement of a directory that was logged
	displaced atomic.Pointer[[]error] // by directory, why nothing lands there; nil: Compare has not run yet
	Comparing atomic.Bool             // set by Compare's caller: a Compare is under way, or hangs
	Cleared   sync.Map                // directories of accounts, logged as mostly deleted here: each pass of a drain finds them anew

	seats atomic.Pointer[map[seatKey]seat] // known for certain

	mu     sync.Mutex
	seen   managers // the managers of a store with Spark's layout, as lately found
	seenAt time.Time
	seeing bool // somebody looks for the managers
}

// Layout is how a store's files form blocks.
type Layout interface {
	// Scan yields every block of one part of the store, and every file that is left alone with the reason. A part is what
	// can be scanned by itself: one directory if no block has files in several. Files that did not change since an earlier
	// look may be left out; an Item without an id then only says that the scan goes on.
	Scan(ctx context.Context, s *Store, part int, before Past, yield func(Item, error) bool) (more bool)
	Parts(s *Store) int
	// Find returns the block that an id names, or the block that the named file is a member of; fs.ErrNotExist if there
	// is none. It calls at with each of the store's directories before it looks there.
	Find(s *Store, id BlockID, at func(dir *string)) (Block, error)
	// Place returns where a member of a landing block belongs: the number of the directory, and the path inside it.
	Place(s *Store, id BlockID, member string) (root int, path string)
	// Anywhere reports whether the member of a landing block may lie in any of the store's directories.
	Anywhere() bool
	// Made returns the directory, below one of the store's, that is made for landing blocks of that scope alone; "":
	// they lie among an engine's own files.
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

	Value    time.Duration // how long it takes to compute again, as somebody has said; 0: nobody has
	Origin   string        // if traced, the node that it was born on; "": this one
	Traced   bool
	Spare    bool // the node that it came from still has it
	Outdated bool // the node that it came from has another version by now
}

// Member is one file of a block. Name is relative to the block's scope; for a block of one file it is the id's name.
type Member struct {
	Name    string
	Bytes   int64
	ModTime time.Time

	Root       int    // the number of the store's directory, or InVault
	Path       string // below that directory; for a block in the vault, the vault's directory
	ChangeTime int64  // change time, Unix nanoseconds: rises when a file is renamed into place
}

// Roster allocates lists of members for a goroutine that makes many blocks, most of them of one member. Many lists share an
// allocation, which saves time with small blocks.
type Roster []Member

// Of returns a list of n members.
func (r *Roster) Of(n int) []Member {
	if len(*r) < n {
		*r = make(Roster, max(n, 32))
	}
	some := (*r)[:n:n]
	*r = (*r)[n:]
	return some
}

// InVault is the Root of members whose bytes are in the vault's segments.
const InVault = -1

// Bytes returns the size of all members together.
func (b Block) Bytes() (n int64) {
	for _, m := range b.Members {
		n += m.Bytes
	}
	return n
}

// Changed returns the last instant at which the block may have changed.
func (b Block) Changed() (by int64) {
	for _, m := range b.Members {
		by = max(by, changedBy(m.ChangeTime))
	}
	return by
}

// Modified returns when the newest of its members was modified.
func (b Block) Modified() (t time.Time) {
	for _, m := range b.Members {
		if m.ModTime.After(t) {
			t = m.ModTime
		}
	}
	return t
}

// Item is what a scan meets: a block to carry, or with Skip a file that is left alone and why, or with Stays a block that
// cannot be carried and what to do about that.
type Item struct {
	Block
	Skip    string
	Stays   string
	Stirred string // without a block: STORE/SCOPE/DIRECTORY, where a name came or went since the look before
	Anew    bool   // no earlier look went through its directory where that is now: it may be new, whatever its times say
}

// Stranded returns why a drain would lose what an inventory yields, even if a peer has room for it. directory: it is a whole directory that
// could not be listed. "": as far as is known a drain can carry it. A disk that does not answer is no reason, for it may answer in time.
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

// Carried reports whether the item is a block to carry.
func (it Item) Carried() bool { return it.Skip == "" && it.Stays == "" }

// OpenStore opens a store's directories. A directory that does not exist yet is made: an engine may come later. A directory whose disk
// errs or does not answer is passed by until the disk is well; Away returns why.
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
		s.Unmake()
		return nil, errors.Join(append(errs, s.Close())...)
	}
	if info, err := os.Stat("/"); err == nil {
		s.System = deviceOf(info)
	}
	if err := s.openDirs(); err != nil {
		s.Unmake()
		return nil, errors.Join(fmt.Errorf("store %s: %w", cfg.Name, err), s.Close())
	}
	return s, nil
}

// Unmake removes the directories that OpenStore made and that are empty still. An agent that cannot start calls it, so that
// the next start warns of the missing directories, too.
func (s *Store) Unmake() {
	for _, path := range s.Made {
		_ = syscall.Rmdir(path)
	}
}

// StoreOf returns the store that an id names; nil: none of these.
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
// read, and comes with the block's id if it is about one. The scan goes on after it unless ctx has ended.
func (s *Store) Scan(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for part := range s.Shape.Parts(s) {
			if !s.Shape.Scan(ctx, s, part, Past{}, yield) {
				return
			}
		}
	}
}

// PartDirs returns the directories that a part of the store lies in.
func (s *Store) PartDirs(part int) []string {
	if s.Shape.Parts(s) == 1 {
		return s.Paths
	}
	return s.Paths[part:][:1]
}

// Find returns the block that an id names, or that the named member belongs to.
func (s *Store) Find(id BlockID) (Block, error) { return s.Shape.Find(s, id, Nobody) }

// Nobody is passed as at by callers whose look nobody watches.
func Nobody(*string) {}

// ByName returns the stores by their names.
func ByName(stores []*Store) map[string]*Store {
	all := make(map[string]*Store, len(stores))
	for _, s := range stores {
		all[s.Name] = s
	}
	return all
}

// Open opens a member's file for reading. If the file has become a pipe since it was seen, Open does not wait for a
// writer.
func (s *Store) Open(m Member) (*os.File, error) {
	if err := s.Readable(s.Paths[m.Root]); err != nil {
		return nil, err
	}
	return s.Roots[m.Root].OpenFile(m.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Readable returns a SilentError if a read below the path may never come back, or if a stand-in is open there.
func (s *Store) Readable(path string) error {
	if i := slices.Index(s.Paths, path); i >= 0 && i < len(s.dead) && s.dead[i] {
		return diskio.Silence(path)
	}
	return s.Watched.Readable(path)
}

// Hollow reports whether one of the store's directories is empty: a disk that was not mounted at boot looks like that.
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

// whole returns a SilentError while one of the store's disks does not answer: a block that is not found may be there.
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

// Member describes a regular file. It returns fs.ErrInvalid for anything else.
func (s *Store) Member(root int, p, name string) (Member, error) {
	info, err := s.Roots[root].Lstat(p)
	if err != nil {
		return Member{}, err
	}
	return MemberOf(root, p, name, info)
}

func notRegular(p string) error { return &fs.PathError{Op: "carry", Path: p, Err: fs.ErrInvalid} }

// MemberOf describes a regular file by its info. It returns fs.ErrInvalid for anything else.
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

// StagingDir holds files on their way to their places, in each directory of a store that blocks land in. Scans leave it
// out.
const StagingDir = ".lifeboat-staging"

// skip returns the item for a file that is left alone. Its id has the file's name, as far as that can be shown.
func (s *Store) skip(root int, scope, p, why string, bytes int64) Item {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(p, "?"))
	return Item{
		Block: Block{ID: BlockID(s.Name + "/" + scope + "/" + name), Kind: s.Kind, Layout: s.Layout, Members: []Member{{Name: name, Bytes: bytes, Root: root}}},
		Skip:  why,
	}
}

// Away returns why a directory of the store seems to be without its disk; nil: it does not.
func (s *Store) Away(path string) error {
	if i := slices.Index(s.Paths, filepath.Clean(path)); i >= 0 && i < len(s.AwayWhy) {
		return s.AwayWhy[i]
	}
	return nil
}

// Device returns the number of the device that a directory is on; 0: unknown.
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
