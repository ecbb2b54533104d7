package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// SparkLayout knows the local directories of a Spark block manager:
//
//	PATH/.../blockmgr-UUID/XX/shuffle_S_M_0.data|.index|.checksum.ALG and rdd_R_P
//
// (DiskBlockManager and IndexShuffleBlockResolver in Spark's core). A map output is one block of two or three files,
// and counts only if its index agrees with its data. Temporary files, half committed map outputs and files that are no
// block by their names are left alone and named.
//
// A block's scope is the application's id, if a directory above the block manager's names it (YARN's appcache), or a file in the block
// manager's directory does (appFile), which may also name an attempt of that application. Otherwise it is the block manager's directory
// that holds the index. An executor with several local directories has a blockmgr directory of another name in each, and only Spark's rule
// for placing files ties them together. So members are looked for where that rule puts them.
type SparkLayout struct{}

var (
	blockManagerDir = regexp.MustCompile(`^blockmgr-[0-9A-Za-z-]+$`)
	ApplicationDir  = regexp.MustCompile(`^(application_\d+_\d+|app-\d+-\d+|local-\d+)$`)
	attemptDir      = regexp.MustCompile(`^appattempt_(\d+_\d+)_\d+$`)
	subDirectory    = regexp.MustCompile(`^[0-9a-f]{2}$`)

	MapOutputFile  = regexp.MustCompile(`^(shuffle_\d+_\d+_\d+)\.(data|index|checksum\.[A-Z0-9]+)$`)
	MapOutput      = regexp.MustCompile(`^shuffle_\d+_\d+_\d+$`)
	cachedRDD      = regexp.MustCompile(`^rdd_\d+_\d+$`)
	mergedShuffle  = regexp.MustCompile(`^shuffleMerged_`)
	broadcastBlock = regexp.MustCompile(`^broadcast_`)
	sparkTemporary = regexp.MustCompile(`^temp_(local|shuffle)_|\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// checksumAlgorithms are those that Spark writes: spark.shuffle.checksum.algorithm (ADLER32 and CRC32; CRC32C since 4.0).
var checksumAlgorithms = []string{"ADLER32", "CRC32", "CRC32C"}

// subDirectories is Spark's spark.diskStore.subDirectories, which nobody is known to change.
const subDirectories = 64

// SparkPlace returns where a block manager with that many local directories keeps a file: the number of the directory,
// and the two hex digits below its blockmgr directory. The rule is DiskBlockManager.getFile's: the absolute value of
// Java's String.hashCode, or 0 for the one value that has none.
func SparkPlace(name string, dirs int) (dir int, sub string) {
	h := int(JavaHash(name))
	return h % dirs, subDirectoryNames[h/dirs%subDirectories]
}

var subDirectoryNames = func() (names [subDirectories]string) {
	for i := range names {
		names[i] = fmt.Sprintf("%02x", i)
	}
	return names
}()

// JavaHash is Spark's JavaUtils.nonNegativeHash.
func JavaHash(name string) (h int32) {
	for _, r := range name { // Java hashes UTF-16 units
		if utf16.RuneLen(r) == 2 {
			high, low := utf16.EncodeRune(r)
			h, r = 31*h+high, low
		}
		h = 31*h + r
	}
	if h < 0 {
		h = -h
	}
	return max(h, 0) // the one value without a positive twin
}

// ErrNoData says that a map output has an index and no data: the data were removed, or it is being committed anew, for Spark
// names the index first.
var ErrNoData = errors.New("index without its data")

func anyFile(Member) bool { return true }

// oneCommit is longer than Spark takes from the index of a map output to its checksums: it writes one after the other.
const oneCommit = time.Minute

// committedWith reports whether checksums may belong to an index: they have a number for each partition, and the index has one more. Other
// executors have map outputs of the same name; when the external shuffle service removes a dead executor's data it may leave checksums
// (ExternalShuffleBlockResolver).
func (index Member) committedWith(sums Member) bool {
	return sums.Bytes == index.Bytes-8 && sums.ModTime.Sub(index.ModTime).Abs() < oneCommit
}

// mapOutput assembles the block of an index file. The error says why it is not a committed map output.
func (s *Store) mapOutput(all *managers, mgr *blockManager, index Member) (Block, error) {
	base := strings.TrimSuffix(index.Name, ".index")
	id, err := s.id(mgr.scope, base)
	if err != nil {
		return Block{}, err
	}
	all.at(&s.Paths[mgr.root])
	end, err := s.checkIndex(all, index)
	if err != nil {
		return Block{}, err
	}
	members := []Member{index}
	data, err := s.lookUp(all, mgr, index.Path, base+".data", func(m Member) bool { return m.Bytes == end })
	switch {
	case err == nil:
		members = []Member{data, index}
		s.marry(all, mgr, index, data)
	case end == 0 && (diskio.IsSilent(err) || unseen(err)):
	case !errors.Is(err, fs.ErrNotExist):
		return Block{}, err
	case end != 0:
		if wrong, err := s.lookUp(all, mgr, index.Path, base+".data", anyFile); err == nil {
			return Block{}, fmt.Errorf("index and data disagree: the index ends at %d, the data has %d bytes", end, wrong.Bytes)
		}
		return Block{}, fmt.Errorf("%w: %d bytes are missing", ErrNoData, end)
	}
	for _, alg := range append([]string{all.checksum}, checksumAlgorithms...) {
		if alg == "" {
			continue
		}
		if sums, err := s.lookUp(all, mgr, index.Path, base+".checksum."+alg, index.committedWith); err == nil {
			members = append(members, sums)
			all.checksum = alg
			break
		}
	}
	return s.block(id, members...), nil
}

// checkIndex reads an index file and returns where its last partition ends.
func (s *Store) checkIndex(all *managers, index Member) (int64, error) {
	f, err := all.subdirs.openFile(s, index.Root, index.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return ReadIndex(f, index.Bytes)
}

func (SparkLayout) Parts(*Store) int { return 1 }

// Scan, after the first look, looks only at map outputs of which a file has changed since, and reads only their indexes. If it cannot tell
// which files belong together, it looks at everything again.
func (l SparkLayout) Scan(ctx context.Context, s *Store, part int, before Past, yield func(Item, error) bool) bool {
	fault := func(err error) bool { return yield(Item{}, err) }
	all, ok := s.managers(ctx, Nobody, fault)
	if !ok {
		return false
	}
	all.subdirs = &subdirs{s: s, open: map[subdir]*os.File{}}
	defer all.subdirs.close()
	before.Kin.tell(s, all)
	defer before.Kin.learn(s, all)
	if !before.Since.IsZero() {
		all.since = before.Since.UnixNano()
	}
	// Ambiguous files are looked at once more in the end, when more is known of which managers belong together.
	var later []func() bool
	for _, mgr := range all.all {
		all.subdirs.makeRoom()
		var said values
		if err := said.in(s.Roots[mgr.root], mgr.path); err != nil && !fault(err) {
			return false
		}
		w := walk{root: s.Roots[mgr.root], fault: fault, since: all.since, past: before, passed: func() bool { return yield(Item{}, nil) }}
		yield := func(it Item, err error) bool {
			it.Value, it.Anew = said.of[it.ID.Name()], w.anew
			return yield(it, err)
		}
		if all.since == 0 {
			w.known = func(dir string, e dirent) (met, more bool) {
				return s.hasIndex(all, mgr, dir, e.name), true
			}
		}
		w.enter = func(dir string) bool { return path.Dir(dir) == mgr.path && subDirectory.MatchString(path.Base(dir)) }
		w.visit = func(f *seen) bool {
			if f.name == ValuesFile || f.name == appFile {
				return true
			}
			item, err := s.sparkItem(all, mgr, f)
			if errors.Is(err, errAmbiguous) && len(later) < maxLater {
				f := *f
				later = append(later, func() bool {
					item, err := s.sparkItem(all, mgr, &f)
					return s.show(mgr, &f, item, err, yield)
				})
				return true
			}
			return s.show(mgr, f, item, err, yield)
		}
		if !w.below(ctx, mgr.path) {
			return false
		}
	}
	if len(later) > 0 && all.since != 0 {
		before.Since = time.Time{}
		return l.Scan(ctx, s, part, before, yield)
	}
	for _, again := range later {
		if ctx.Err() != nil || !again() {
			return false
		}
	}
	return true
}

// hasIndex reports whether a file belongs to a map output that has an index: the index's visit looks at it.
func (s *Store) hasIndex(all *managers, mgr *blockManager, dir string, name []byte) bool {
	match := MapOutputFile.FindSubmatch(name)
	if match == nil || string(match[2]) == "index" {
		return false
	}
	_, err := s.lookUp(all, mgr, dir+"/"+string(name), string(match[1])+".index", anyFile)
	return err == nil
}

// maxLater bounds the memory for ambiguous files.
const maxLater = 4096

// leave is a reason to leave a file alone.
type leave string

func (why leave) Error() string { return string(why) }

// show yields what sparkItem returned for a file. A file that its disk does not give is yielded as an error, not as one
// left alone.
func (s *Store) show(mgr *blockManager, f *seen, item Item, err error, yield func(Item, error) bool) bool {
	switch {
	case errors.Is(err, errNotShown), errors.Is(err, fs.ErrNotExist): // or it was removed while we looked
		return true
	case err == nil:
		return yield(item, nil)
	}
	if errors.Is(err, errAmbiguous) { // a map output, and one that cannot be carried
		m, unseen := f.member(mgr.root, f.name)
		if id, unnamed := s.id(mgr.scope, f.name); unseen == nil && unnamed == nil {
			return yield(Item{Block: s.block(id.Block(), m), Stays: err.Error()}, nil)
		}
	}
	left := s.skip(mgr.root, mgr.scope, f.name, err.Error(), f.bytes())
	if _, unread := errors.AsType[*fs.PathError](err); unread || diskio.IsSilent(err) {
		left.ID = left.ID.Block()
		if m, unseen := f.member(mgr.root, f.name); unseen == nil {
			left.Members[0] = m
		}
		return yield(Item{Block: left.Block}, err)
	}
	return yield(left, nil)
}

// errNotShown says that a file is part of another file's item.
var errNotShown = errors.New("part of another item")

// sparkItem returns what one file below a blockmgr directory is, or as an error why it is left alone.
func (s *Store) sparkItem(all *managers, mgr *blockManager, f *seen) (Item, error) {
	name := f.name
	match := MapOutputFile.FindStringSubmatch(name)
	switch {
	case !f.regular:
		return Item{}, leave("not a regular file")
	case match == nil && sparkTemporary.MatchString(name):
		return Item{}, leave("temporary file")
	case match != nil && match[2] == "index":
		m, err := f.member(mgr.root, name)
		if err != nil {
			return Item{}, err
		}
		b, err := s.mapOutput(all, mgr, m)
		return Item{Block: b}, err
	case match != nil:
		switch index, err := s.lookUp(all, mgr, f.path, match[1]+".index", anyFile); {
		case errors.Is(err, fs.ErrNotExist):
			return Item{}, leave("no index: the map output was not committed")
		case err == nil && changedBy(index.ChangeTime) < all.since: // the scan passes the index by
			b, err := s.mapOutput(all, all.holding(index), index)
			return Item{Block: b}, err
		case errors.Is(err, errAmbiguous) && all.since != 0:
			return Item{}, err
		}
		return Item{}, errNotShown
	case cachedRDD.MatchString(name):
		id, err := s.id(mgr.scope, name)
		if err != nil {
			return Item{}, err
		}
		m, err := f.member(mgr.root, name)
		return Item{Block: s.block(id, m)}, err
	case mergedShuffle.MatchString(name):
		return Item{}, leave("push-merged shuffle: its map outputs are carried instead")
	case broadcastBlock.MatchString(name):
		return Item{}, leave("broadcast: the driver has it")
	default:
		return Item{}, leave("not a block by its name")
	}
}

func (l SparkLayout) Find(s *Store, id BlockID, at func(dir *string)) (Block, error) {
	all, fresh := s.lately(at)
	b, err := l.findIn(s, all, id)
	if err != nil && !fresh {
		return l.findIn(s, s.lookAnew(at), id)
	}
	return b, err
}

func (SparkLayout) findIn(s *Store, all *managers, id BlockID) (Block, error) {
	name := id.Name()
	if sparkTemporary.MatchString(name) {
		return Block{}, fs.ErrNotExist // as a scan says
	}
	output := MapOutput.MatchString(name) || MapOutputFile.MatchString(name)
	if output {
		name = id.Block().Name() + ".index"
	}
	for _, mgr := range all.all {
		if mgr.scope != id.Scope() || s.Readable(s.Paths[mgr.root]) != nil {
			continue
		}
		for _, seat := range s.seatsOf(mgr) {
			sub, ok := seat.holds(name)
			if !ok {
				continue
			}
			all.at(&s.Paths[mgr.root])
			m, err := s.Member(mgr.root, path.Join(mgr.path, sub, name), name)
			switch {
			case err != nil:
			case output:
				return s.mapOutput(all, mgr, m)
			default:
				return s.block(id, m), nil
			}
		}
	}
	return Block{}, cmp.Or(all.whole(s), fs.ErrNotExist)
}

// Place gives a landed block a blockmgr directory of its source's name in every local directory, and hashes each file
// anew for as many directories as there are here.
func (SparkLayout) Place(s *Store, id BlockID, member string) (int, string) {
	dir, sub := SparkPlace(member, len(s.Roots))
	return dir, path.Join(SparkLayout{}.Made(id), sub, member)
}

func (SparkLayout) Made(id BlockID) string {
	if scope := id.Scope(); !blockManagerDir.MatchString(scope) {
		return path.Join(scope, "blockmgr-lifeboat")
	}
	return id.Scope()
}

func (SparkLayout) Anywhere() bool { return false }

func (SparkLayout) Last(member string) bool { return strings.HasSuffix(member, ".index") }
