package inventory

import (
	"os"
	"path"
	"slices"
)

// seat is the place of a blockmgr directory among those of its executor: number at, counted from 0, of so many directories.
//
// The store's configuration does not tell it. An executor has the directories that were good when it started, in an order of its
// own: YARN leaves out those that failed, and appends one that has recovered (DirectoryCollection.checkDirs). The files tell it by
// where they lie: a file in one of 64 subdirectories agrees with about one in 64 numbers of directories, and several files hardly
// ever agree with a wrong one.
type seat struct{ of, at int }

// maxSeats is the most local directories that an executor has; machines with 60 disks are the largest that are sold for Hadoop.
const maxSeats = 64

// configured returns a directory's seat if its executor has the store's directories as configured. Landed blocks lie like that.
func (s *Store) configured(m *blockManager) seat { return seat{len(s.Roots), m.root} }

// holds returns the subdirectory in which a directory with that seat keeps a file. It reports false if another seat has
// the file.
func (s seat) holds(name string) (sub string, ok bool) {
	dir, sub := SparkPlace(name, s.of)
	return sub, dir == s.at
}

// seatsBy returns the seats that a directory may have which keeps the named file in sub.
func seatsBy(name, sub string) (seats []seat) {
	for of := 1; of <= maxSeats; of++ {
		if dir, in := SparkPlace(name, of); in == sub {
			seats = append(seats, seat{of, dir})
		}
	}
	return seats
}

const (
	seatSample = 32 // files that are looked at to tell a directory's seat
	seatShare  = 4  // of them at most from one subdirectory
	seatProof  = 3  // a seat is certain if so many files agree with it, and no other seat has as many
)

// sit returns the seats that most files in a manager agree with. certain: it is the one seat.
func (s *Store) sit(m *blockManager) (seats []seat, certain bool) {
	top, err := s.Roots[m.root].OpenRoot(m.path)
	if err != nil {
		return nil, false
	}
	defer top.Close()
	agree, sample := map[seat]int{}, 0
	for _, sub := range someNames(top, ".", 0) {
		if !subDirectory.MatchString(sub) {
			continue
		}
		for _, name := range someNames(top, sub, seatShare) {
			if !MapOutputFile.MatchString(name) && !cachedRDD.MatchString(name) {
				continue
			}
			for _, seat := range seatsBy(name, sub) {
				agree[seat]++
			}
			sample++
		}
		if sample >= seatSample {
			break
		}
	}
	most := 0
	for seat, n := range agree {
		if n > most {
			most, seats = n, nil
		}
		if n == most {
			seats = append(seats, seat)
		}
	}
	slices.SortFunc(seats, func(a, b seat) int { return a.of - b.of })
	return seats, most >= seatProof && len(seats) == 1
}

// someNames returns at most so many names in a directory; 0: all.
func someNames(dir *os.Root, name string, most int) []string {
	f, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(most) // what cannot be read tells nothing
	return names
}

// seated sets the seats of a store's managers. Certain ones are not looked for again.
func (s *Store) seated(all *managers) {
	before, now := s.seats.Load(), map[seatKey]seat{}
	for _, m := range all.all {
		key := seatKey{m.root, m.path}
		if before != nil {
			if known, ok := (*before)[key]; ok {
				m.seats, now[key] = []seat{known}, known
				continue
			}
		}
		all.at(&s.Paths[m.root])
		var certain bool
		if m.seats, certain = s.sit(m); certain {
			now[key] = m.seats[0]
		}
	}
	s.seats.Store(&now)
}

type seatKey struct {
	root int
	path string
}

// seatsOf returns the seats that a manager may have, first those that its files tell.
func (s *Store) seatsOf(m *blockManager) []seat {
	if as := s.configured(m); !slices.Contains(m.seats, as) {
		return append(slices.Clone(m.seats), as)
	}
	return m.seats
}

// seatsWith returns the seats that a manager may have given that it keeps that file.
func (s *Store) seatsWith(m *blockManager, file string) (seats []seat) {
	name, sub := path.Base(file), path.Base(path.Dir(file))
	for _, seat := range s.seatsOf(m) {
		if in, ok := seat.holds(name); ok && in == sub {
			seats = append(seats, seat)
		}
	}
	if seats == nil {
		return seatsBy(name, sub)
	}
	return seats
}

// maySit reports whether a manager may have a seat. An empty manager may have any.
func (s *Store) maySit(m *blockManager, at seat) bool {
	return len(m.seats) == 0 || slices.Contains(m.seats, at) || at == s.configured(m)
}
