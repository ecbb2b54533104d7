package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// blockManager is one blockmgr directory.
type blockManager struct {
	root  int
	path  string
	base  string
	scope string
	app   bool   // the scope is an application's id
	seats []seat // that it may have; nil: there is nothing to tell by
}

func newBlockManager(root int, p string) *blockManager {
	base := path.Base(p)
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		if ApplicationDir.MatchString(part) || attemptDir.MatchString(part) {
			return &blockManager{root: root, path: p, base: base, scope: part, app: true}
		}
	}
	return &blockManager{root: root, path: p, base: base, scope: base}
}

// appFile may lie in a blockmgr directory and name the application that it belongs to, where no directory above does: those of a
// standalone worker's executors have the names of nothing. It ends as data does: what else is there Spark removes with the executor, and
// leaves the map outputs (ExternalShuffleBlockResolver.executorRemoved).
//
// Where one does, it may name an attempt of that application, as YARN names attempts (appattempt_...): each is a driver of its own that
// counts shuffles and maps from 0, in the same directories, and what another wrote under the same name is not what its readers want.
const appFile = ".lifeboat-app.data"

// ask has the file in the directory name the application. One that cannot be read, or names none, is none.
func (m *blockManager) ask(root *os.Root) {
	f, err := root.OpenFile(path.Join(m.path, appFile), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	said, _ := io.ReadAll(io.LimitReader(f, maxComponentBytes))
	if app := strings.TrimSpace(string(said)); m.app && attemptOf(app, m.scope) || !m.app && ApplicationDir.MatchString(app) {
		m.scope, m.app = app, true
	}
}

// attemptOf reports whether a name is that of an attempt of an application of YARN's. Its user writes into its directories, and is to name no other.
func attemptOf(name, app string) bool {
	match := attemptDir.FindStringSubmatch(name)
	return match != nil && "application_"+match[1] == app
}

// mayShare reports whether two directories may belong to one executor: the same application, or nothing known of either.
func (m *blockManager) mayShare(other *blockManager) bool {
	if m.app || other.app {
		return m.scope == other.scope
	}
	return true
}

// managers are the blockmgr directories of a store: a few for each executor that ever ran here. mates are those found to
// be one executor's: an index in one agreed with the data in the other, so their other files are looked for there first.
type managers struct {
	all      []*blockManager
	passed   []error // of each of the store's directories, why it was not looked through; nil: it was, and its disk may be silent by now
	mates    map[side]*blockManager
	checksum string            // the algorithm met last: an application has one
	at       func(dir *string) // is told of each of the store's directories before it is looked at
	subdirs  *subdirs          // nil: a file is looked for from the store's directory
	since    int64             // files that did not change since are passed by; Unix nanoseconds, 0: none is
}

// holding is the manager that a file is in.
func (m *managers) holding(f Member) *blockManager {
	i := slices.IndexFunc(m.all, func(mgr *blockManager) bool { return mgr.root == f.Root && strings.HasPrefix(f.Path, mgr.path+"/") })
	return m.all[i]
}

// side asks which manager the executor of one has at another seat.
type side struct {
	of *blockManager
	at seat
}

var errAmbiguous = errors.New("cannot tell which belongs")

// maxManagerDepth is how deep below a store's directory a blockmgr directory is looked for. YARN nests deepest:
// usercache/USER/appcache/APP/blockmgr-UUID.
const maxManagerDepth = 8

// Apps are the applications whose executors have directories in the store, as far as those tell: those of Spark's, on the disks that
// answer, and some more than once.
func (s *Store) Apps() (apps []string) {
	if _, spark := s.Shape.(SparkLayout); !spark {
		return nil
	}
	m, _ := s.lately(Nobody)
	for _, mgr := range m.all {
		if mgr.app {
			apps = append(apps, mgr.scope)
		}
	}
	return apps
}

// lately returns the managers as they were at most a moment ago: who looks for one block often looks for a thousand. One at a time looks
// anew, and nobody waits for him, since a disk may hang under a look: the others have the managers as they were before, which is said
// (fresh is false). Who does not find there what he looks for looks for himself (lookAnew).
func (s *Store) lately(at func(dir *string)) (m *managers, fresh bool) {
	s.mu.Lock()
	m = &managers{all: s.seen.all, passed: s.seen.passed, mates: map[side]*blockManager{}, at: at}
	fresh = time.Since(s.seenAt) <= time.Second && !s.thawed(m)
	known, busy := !s.seenAt.IsZero(), s.seeing
	s.seeing = busy || !fresh
	s.mu.Unlock()
	if fresh || busy && known {
		return m, fresh
	}
	if !busy {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seeing = false
		}()
	}
	return s.lookAnew(at), true
}

// lookAnew returns the managers as they are, on the disks that answer.
func (s *Store) lookAnew(at func(dir *string)) *managers {
	began := time.Now()
	m, _ := s.managers(context.Background(), at, func(error) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.seenAt) {
		s.seen, s.seenAt = managers{all: m.all, passed: m.passed}, began
	}
	return m
}

// thawed reports whether a disk answers now that did not when the managers were looked for.
func (s *Store) thawed(m *managers) bool {
	for i, why := range m.passed {
		if why != nil && s.Readable(s.Paths[i]) == nil {
			return true
		}
	}
	return false
}

func (s *Store) managers(ctx context.Context, at func(dir *string), fault func(error) bool) (m *managers, ok bool) {
	m = &managers{mates: map[side]*blockManager{}, passed: make([]error, len(s.Roots)), at: at}
	for i, root := range s.Roots {
		if err := s.Readable(s.Paths[i]); err != nil {
			m.passed[i] = err
			if !fault(err) {
				return m, false
			}
			continue
		}
		at(&s.Paths[i])
		enter := func(dir string) bool {
			base := path.Base(dir)
			if blockManagerDir.MatchString(base) {
				mgr := newBlockManager(i, dir)
				mgr.ask(root)
				m.all = append(m.all, mgr)
				return false
			}
			return base != StagingDir && strings.Count(dir, "/") < maxManagerDepth
		}
		// Beside the executors' directories lies what containers were given, hundreds of thousands of files on a node of YARN's: none of
		// them is looked at.
		pass := func(string, dirent) (met, more bool) { return true, true }
		w := walk{root: root, enter: enter, known: pass, visit: func(*seen) bool { return true }, fault: fault}
		if !w.below(ctx, ".") {
			return m, false
		}
	}
	s.seated(m)
	return m, true
}

// lookUp finds a file of a block that has a known one in near: where Spark's rule puts it for a seat that near may have. accept says
// whether what is there is the right one. More than one match is an error.
func (s *Store) lookUp(all *managers, near *blockManager, known, name string, accept func(Member) bool) (Member, error) {
	missing := error(fs.ErrNotExist)
	for _, has := range s.seatsWith(near, known) {
		f, err := s.lookIn(all, near, has, name, accept)
		if err == nil || errors.Is(err, errAmbiguous) {
			return f, err
		}
		if missing == fs.ErrNotExist {
			missing = err
		}
	}
	return Member{}, missing
}

// unseen reports whether a file could not be looked at, which does not mean that it is not there.
func unseen(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrInvalid)
}

// lookIn tries the manager that near's executor has where the file belongs if near has that seat; where it is not known which that is,
// all that may be it.
func (s *Store) lookIn(all *managers, near *blockManager, has seat, name string, accept func(Member) bool) (found Member, err error) {
	dir, sub := SparkPlace(name, has.of)
	try := func(m *blockManager) (Member, error) {
		all.at(&s.Paths[m.root])
		f, err := all.subdirs.member(s, m.root, m.path+"/"+sub+"/"+name)
		if err == nil && !accept(f) {
			err = fs.ErrNotExist
		}
		return f, err
	}
	if dir == has.at {
		return try(near)
	}
	at := seat{has.of, dir}
	if m, known := all.mates[side{near, at}]; known {
		if f, err := try(m); err == nil {
			return f, nil
		}
	}
	matches, missing := 0, error(nil)
	for _, m := range all.all {
		if m == near || !m.mayShare(near) || !s.maySit(m, at) {
			continue
		}
		f, err := try(m)
		if m.base == near.base && at == s.configured(m) { // a landed block's, named alike in all
			return f, err
		}
		if err == nil {
			found = f
			matches++
		} else if unseen(err) {
			missing = err
		}
	}
	switch matches {
	case 0:
		return Member{}, cmp.Or(missing, s.unread(all, near, at), fs.ErrNotExist)
	case 1:
		return found, nil
	default:
		return Member{}, fmt.Errorf("%d block managers have a %s: %w to %s", matches, name, errAmbiguous, near.path)
	}
}

// unread says why what near's executor keeps at a seat cannot be read, or could not when the managers were looked for; nil: its disks
// answer.
func (s *Store) unread(all *managers, near *blockManager, at seat) error {
	if at.of == len(s.Roots) && slices.Contains(near.seats, s.configured(near)) {
		return cmp.Or(all.passed[at.at], s.Readable(s.Paths[at.at]))
	}
	return all.whole(s)
}

// whole returns why one of the store's directories cannot be read, or was not when the managers were looked for.
func (m *managers) whole(s *Store) error { return cmp.Or(cmp.Or(m.passed...), s.whole()) }

// marry remembers that an index in one manager agrees with data in another.
func (s *Store) marry(all *managers, near *blockManager, index, data Member) {
	for _, other := range all.all {
		if other == near || other.root != data.Root || !strings.HasPrefix(data.Path, other.path+"/") {
			continue
		}
		for _, has := range s.seatsWith(near, index.Path) {
			dir, _ := SparkPlace(data.Name, has.of)
			all.mates[side{near, seat{has.of, dir}}] = other
			all.mates[side{other, has}] = near
		}
	}
}
