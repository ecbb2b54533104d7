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

// blockManager is one blockmgr directory, of one executor.
type blockManager struct {
	root  int
	path  string
	base  string
	scope string
	app   bool   // the scope is an application's id
	seats []seat // that its files allow; nil: there are no files to tell by
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

// appFile may lie in a blockmgr directory and name the application that it belongs to, if no directory above does: those of a standalone
// worker's executors have names that tell nothing. Its name ends in .data because when an executor ends, Spark removes what else is
// there and leaves the map outputs (ExternalShuffleBlockResolver.executorRemoved).
//
// If a directory above names the application, the file may name one of its attempts, as YARN does (appattempt_...). Each attempt is a
// driver of its own that counts shuffles and maps from 0, in the same directories: what another attempt wrote under the same name is
// not what this one's readers want.
const appFile = ".lifeboat-app.data"

// ask sets the application that the file in the directory names. A file that cannot be read, or names none, changes
// nothing.
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

// attemptOf reports whether a name is an attempt of a YARN application. The application's user writes into its directories, and must not
// name another.
func attemptOf(name, app string) bool {
	match := attemptDir.FindStringSubmatch(name)
	return match != nil && "application_"+match[1] == app
}

// mayShare reports whether two directories may belong to one executor: they have the same application, or none is known
// for either.
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
	passed   []error // by the store's directories, why one was not looked through; nil: it was, and its disk may be silent by now
	mates    map[side]*blockManager
	checksum string            // the algorithm that was met last: an application uses one
	at       func(dir *string) // called with each of the store's directories before a look there
	subdirs  *subdirs          // nil: files are looked for from the store's directory
	since    int64             // files that did not change since are passed by; Unix nanoseconds, 0: none is
}

// holding returns the manager that a file is in.
func (m *managers) holding(f Member) *blockManager {
	i := slices.IndexFunc(m.all, func(mgr *blockManager) bool { return mgr.root == f.Root && strings.HasPrefix(f.Path, mgr.path+"/") })
	return m.all[i]
}

// side stands for the directory that a manager's executor has at another seat.
type side struct {
	of *blockManager
	at seat
}

var errAmbiguous = errors.New("cannot tell which belongs")

// maxManagerDepth is how deep below a store's directory a blockmgr directory is looked for. YARN nests deepest:
// usercache/USER/appcache/APP/blockmgr-UUID.
const maxManagerDepth = 8

// Apps returns the applications whose executors have directories in the store, as far as those tell: only of Spark's layout, only on
// disks that answer, and some more than once.
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

// lately returns the managers as they were at most a second ago: callers often look for a thousand blocks in a row. One caller at a time
// looks anew. The others do not wait for it, since a disk may hang under its look: they get the older managers, with fresh false. A
// caller that does not find its block there looks itself (lookAnew).
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

// lookAnew looks for the managers on the disks that answer.
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
		// Beside the executors' directories lie files that containers were given, hundreds of thousands on a YARN node: none of them is
		// looked at.
		pass := func(string, dirent) (met, more bool) { return true, true }
		w := walk{root: root, enter: enter, known: pass, visit: func(*seen) bool { return true }, fault: fault}
		if !w.below(ctx, ".") {
			return m, false
		}
	}
	s.seated(m)
	return m, true
}

// lookUp finds a file of the block that the known file in near belongs to: it looks where Spark's rule puts the file, for each seat
// that near may have. accept says whether a file found there is the right one. More than one match is an error.
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

// unseen reports whether a file could not be looked at, so that it may be there.
func unseen(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrInvalid)
}

// lookIn tries the manager that near's executor has where the file belongs if near has that seat. If that manager is not known, it
// tries all that may be it.
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
		if m.base == near.base && at == s.configured(m) { // a landed block's directories have one name in all roots
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

// unread returns why the directory that near's executor has at a seat cannot be read, or could not when the managers were looked for;
// nil: its disk answers.
func (s *Store) unread(all *managers, near *blockManager, at seat) error {
	if at.of == len(s.Roots) && slices.Contains(near.seats, s.configured(near)) {
		return cmp.Or(all.passed[at.at], s.Readable(s.Paths[at.at]))
	}
	return all.whole(s)
}

// whole returns why one of the store's directories cannot be read, or could not when the managers were looked for.
func (m *managers) whole(s *Store) error { return cmp.Or(cmp.Or(m.passed...), s.whole()) }

// marry notes that an index in one manager agrees with data in another, so both are one executor's.
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
