package inventory

import (
	"os"
	"path"
	"slices"
)

// seat is the place of a blockmgr directory among those of its executor: the at-th of so many.
//
// The store's configuration does not tell. An executor has the directories that were good when it started, in an order of its own:
// YARN leaves out those that failed, and one that has recovered comes last (DirectoryCollection.checkDirs). What tells is where the
// files lie: for one of 64 subdirectories, one in 64 numbers of directories is right, and for several files hardly ever a wrong one.
type seat struct{ of, at int }

// maxSeats is how many local directories an executor has at most; machines with 60 disks are the largest that are sold for Hadoop.
const maxSeats = 64

// configured is the seat of a directory if the executor has the store's directories as they are configured. What has landed lies so.
func (s *Store) configured(m *blockManager) seat { return seat{len(s.Roots), m.root} }

// holds is the subdirectory in which a directory with that seat keeps a file, if it is the one that does.
func (s seat) holds(name string) (sub string, ok bool) {
	dir, sub := SparkPlace(name, s.of)
	return sub, dir == s.at
}

// seatsBy are those that a directory can have which keeps a file in a subdirectory.
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
	seatShare  = 4  // of them in one subdirectory
	seatProof  = 3  // files that agree, and nothing else agrees with as many: the seat is certain
)

// sit tells the seats that a manager may have by the files in it: those that agree with most of them. certain: it is the one.
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

// someNames are at most so many of the names in a directory; 0: all.
func someNames(dir *os.Root, name string, most int) []string {
	f, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(most) // what cannot be read tells nothing
	return names
}

// seated tells the seats of a store's managers. Those that are certain are not looked at again.
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

// seatsOf are those that a manager can have: first what its files tell.
func (s *Store) seatsOf(m *blockManager) []seat {
	if as := s.configured(m); !slices.Contains(m.seats, as) {
		return append(slices.Clone(m.seats), as)
	}
	return m.seats
}

// seatsWith are the seats that a manager can have that keeps a file in a place.
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

// maySit reports whether a manager may have a seat. Of an empty one nothing is known.
func (s *Store) maySit(m *blockManager, at seat) bool {
	return len(m.seats) == 0 || slices.Contains(m.seats, at) || at == s.configured(m)
}
