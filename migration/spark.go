package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf16"
)

// sparkLayout knows the local directories of a Spark block manager:
//
//	PATH/.../blockmgr-UUID/XX/shuffle_S_M_0.data|.index|.checksum.ALG and rdd_R_P
//
// (DiskBlockManager and IndexShuffleBlockResolver in Spark's core). A map output is one block of two or three files and
// counts only when its index agrees with its data; whatever is temporary, half committed or not a block by its name is
// left alone and named.
//
// A block's scope is the application's id when a directory above the block manager's names it (YARN's appcache), else the
// directory of the block manager that holds the index. An executor with several local directories has a blockmgr
// directory of another name in each, and nothing on disk ties them together but the rule that places files, so members are
// looked for where that rule puts them.
type sparkLayout struct{}

var (
	blockManagerDir = regexp.MustCompile(`^blockmgr-[0-9A-Za-z-]+$`)
	applicationDir  = regexp.MustCompile(`^(application_\d+_\d+|app-\d+-\d+|local-\d+)$`)
	subDirectory    = regexp.MustCompile(`^[0-9a-f]{2}$`)

	mapOutputFile  = regexp.MustCompile(`^(shuffle_\d+_\d+_\d+)\.(data|index|checksum\.[A-Z0-9]+)$`)
	mapOutput      = regexp.MustCompile(`^shuffle_\d+_\d+_\d+$`)
	cachedRDD      = regexp.MustCompile(`^rdd_\d+_\d+$`)
	mergedShuffle  = regexp.MustCompile(`^shuffleMerged_`)
	broadcastBlock = regexp.MustCompile(`^broadcast_`)
	sparkTemporary = regexp.MustCompile(`^temp_(local|shuffle)_|\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// checksumAlgorithms are those that Spark writes: spark.shuffle.checksum.algorithm (ADLER32 and CRC32; CRC32C since 4.0).
var checksumAlgorithms = []string{"ADLER32", "CRC32", "CRC32C"}

// subDirectories is Spark's spark.diskStore.subDirectories, which nobody is known to change.
const subDirectories = 64

// SparkPlace is where a block manager with that many local directories keeps a file: the number of the directory and the
// two hex digits below its blockmgr directory. The rule is DiskBlockManager.getFile's: the absolute value of Java's
// String.hashCode, 0 for the one that has none.
func SparkPlace(name string, dirs int) (dir int, sub string) {
	var h int32
	for _, u := range utf16.Encode([]rune(name)) { // Java hashes UTF-16 units
		h = 31*h + int32(u)
	}
	if h < 0 {
		h = -h
	}
	if h < 0 { // the one value without a positive twin
		h = 0
	}
	return int(h) % dirs, fmt.Sprintf("%02x", int(h)/dirs%subDirectories)
}

// blockManager is one blockmgr directory.
type blockManager struct {
	root  int
	path  string
	scope string
	app   bool // the scope is an application's id
}

func newBlockManager(root int, p string) blockManager {
	for _, part := range strings.Split(path.Dir(p), "/") {
		if applicationDir.MatchString(part) {
			return blockManager{root, p, part, true}
		}
	}
	return blockManager{root, p, path.Base(p), false}
}

// mayShare reports whether two directories may belong to one executor: the same application, or nothing known of either.
func (m blockManager) mayShare(other blockManager) bool {
	if m.app || other.app {
		return m.scope == other.scope
	}
	return true
}

// maxManagerDepth is how deep below a store's directory a blockmgr directory is looked for. YARN nests deepest:
// usercache/USER/appcache/APP/blockmgr-UUID.
const maxManagerDepth = 8

// managers lists the blockmgr directories: a few for each executor that ever ran here.
func (s *Store) managers(ctx context.Context, fault func(error) bool) (all []blockManager, ok bool) {
	for i, root := range s.roots {
		enter := func(dir string) bool {
			base := path.Base(dir)
			if blockManagerDir.MatchString(base) {
				all = append(all, newBlockManager(i, dir))
				return false
			}
			return base != stagingDir && strings.Count(dir, "/") < maxManagerDepth
		}
		if !walk(ctx, root, ".", enter, func(string, fs.DirEntry) bool { return true }, fault) {
			return nil, false
		}
	}
	return all, true
}

// lookUp finds a file of a block whose other files are in near: in near itself, else in the directory where Spark's rule
// puts the name. accept says whether what is there is the right one. More than one match is an error.
func (s *Store) lookUp(all []blockManager, near blockManager, name string, accept func(Member) bool) (Member, error) {
	dir, sub := SparkPlace(name, len(s.roots))
	var found []Member
	for _, m := range all {
		if m.root != dir || !m.mayShare(near) {
			continue
		}
		f, err := s.member(m.root, path.Join(m.path, sub, name), name)
		if err != nil || !accept(f) {
			continue
		}
		if path.Base(m.path) == path.Base(near.path) { // one directory, or a landed block's, named alike in all
			return f, nil
		}
		found = append(found, f)
	}
	switch len(found) {
	case 0:
		// The executor may have run with fewer directories than are configured now.
		_, sub := SparkPlace(name, 1)
		f, err := s.member(near.root, path.Join(near.path, sub, name), name)
		if err == nil && accept(f) {
			return f, nil
		}
		return Member{}, fs.ErrNotExist
	case 1:
		return found[0], nil
	default:
		return Member{}, fmt.Errorf("%d block managers have a %s: cannot tell which belongs to %s", len(found), name, near.path)
	}
}

func anyFile(Member) bool { return true }

// mapOutput assembles the block whose index file is given. The error says why it is not a committed map output.
func (s *Store) mapOutput(all []blockManager, mgr blockManager, index Member) (Block, error) {
	base := strings.TrimSuffix(index.Name, ".index")
	id, err := s.id(mgr.scope, base)
	if err != nil {
		return Block{}, err
	}
	end, err := s.checkIndex(index)
	if err != nil {
		return Block{}, err
	}
	members := []Member{index}
	data, err := s.lookUp(all, mgr, base+".data", func(m Member) bool { return m.Bytes == end })
	switch {
	case err == nil:
		members = []Member{data, index}
	case !errors.Is(err, fs.ErrNotExist):
		return Block{}, err
	case end != 0:
		if wrong, err := s.lookUp(all, mgr, base+".data", anyFile); err == nil {
			return Block{}, fmt.Errorf("index and data disagree: the index ends at %d, the data has %d bytes", end, wrong.Bytes)
		}
		return Block{}, fmt.Errorf("index without its data: %d bytes are missing", end)
	}
	for _, alg := range checksumAlgorithms {
		if sums, err := s.lookUp(all, mgr, base+".checksum."+alg, anyFile); err == nil {
			members = append(members, sums)
		}
	}
	return s.block(id, members...), nil
}

// checkIndex reads an index file and returns where its last partition ends.
func (s *Store) checkIndex(index Member) (int64, error) {
	f, err := s.open(index)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return readIndex(f, index.Bytes)
}

func (sparkLayout) scan(ctx context.Context, s *Store, yield func(Item, error) bool) {
	fault := func(err error) bool { return yield(Item{}, err) }
	all, ok := s.managers(ctx, fault)
	if !ok {
		return
	}
	for _, mgr := range all {
		enter := func(dir string) bool { return path.Dir(dir) == mgr.path && subDirectory.MatchString(path.Base(dir)) }
		visit := func(p string, e fs.DirEntry) bool {
			item, show, err := s.sparkItem(all, mgr, p, e)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return true // cleaned up while we looked
			case err != nil:
				return yield(Item{}, err)
			case !show:
				return true
			}
			return yield(item, nil)
		}
		if !walk(ctx, s.roots[mgr.root], mgr.path, enter, visit, fault) {
			return
		}
	}
}

// sparkItem says what one file below a blockmgr directory is. Files that another file's item accounts for are not shown.
func (s *Store) sparkItem(all []blockManager, mgr blockManager, p string, e fs.DirEntry) (item Item, show bool, err error) {
	name := path.Base(p)
	left := func(why string) (Item, bool, error) { return s.skip(mgr.scope, name, why, size(e)), true, nil }
	match := mapOutputFile.FindStringSubmatch(name)
	switch {
	case e.Type() != 0:
		return left("not a regular file")
	case sparkTemporary.MatchString(name):
		return left("temporary file")
	case match != nil && match[2] == "index":
		m, err := s.member(mgr.root, p, name)
		if err != nil {
			return Item{}, false, err
		}
		b, err := s.mapOutput(all, mgr, m)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Item{}, false, err
			}
			return left(err.Error())
		}
		return Item{Block: b}, true, nil
	case match != nil:
		index := match[1] + ".index"
		if _, err := s.lookUp(all, mgr, index, anyFile); errors.Is(err, fs.ErrNotExist) {
			return left("no index: the map output was not committed")
		}
		return Item{}, false, nil
	case cachedRDD.MatchString(name):
		id, err := s.id(mgr.scope, name)
		if err != nil {
			return left(err.Error())
		}
		m, err := s.member(mgr.root, p, name)
		if err != nil {
			return Item{}, false, err
		}
		return Item{Block: s.block(id, m)}, true, nil
	case mergedShuffle.MatchString(name):
		return left("push-merged shuffle: its map outputs are carried instead")
	case broadcastBlock.MatchString(name):
		return left("broadcast: the driver has it")
	default:
		return left("not a block by its name")
	}
}

func (sparkLayout) find(s *Store, id BlockID) (Block, error) {
	all, ok := s.managers(context.Background(), func(error) bool { return true })
	if !ok {
		return Block{}, fs.ErrNotExist
	}
	name := id.Name()
	output := mapOutput.MatchString(name) || mapOutputFile.MatchString(name)
	if output {
		name = sparkLayout{}.base(id).Name() + ".index"
	}
	dir, sub := SparkPlace(name, len(s.roots))
	_, single := SparkPlace(name, 1)
	for _, mgr := range all {
		if mgr.scope != id.Scope() {
			continue
		}
		p := path.Join(mgr.path, sub, name)
		if mgr.root != dir {
			p = path.Join(mgr.path, single, name)
		}
		m, err := s.member(mgr.root, p, name)
		if err != nil {
			continue
		}
		if !output {
			return s.block(id, m), nil
		}
		return s.mapOutput(all, mgr, m)
	}
	return Block{}, fs.ErrNotExist
}

// place gives a landed block a blockmgr directory of its source's name in every local directory, and hashes each file
// anew for as many directories as there are here.
func (sparkLayout) place(s *Store, id BlockID, member string) (int, string) {
	dir, sub := SparkPlace(member, len(s.roots))
	home := id.Scope()
	if !blockManagerDir.MatchString(home) {
		home = path.Join(home, "blockmgr-lifeboat")
	}
	return dir, path.Join(home, sub, member)
}

func (sparkLayout) base(id BlockID) BlockID {
	if m := mapOutputFile.FindStringSubmatch(id.Name()); m != nil {
		return id.sibling(m[1])
	}
	return id
}

func (sparkLayout) last(member string) bool { return strings.HasSuffix(member, ".index") }
