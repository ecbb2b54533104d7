package migration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"
)

// A store's disk may not be mounted when the agent starts. Then an empty directory of the system's disk is where blocks have
// landed in place: they are not gone, and a block that landed there now would lie beneath the mount, together with a staging
// directory that has the others look like what engines removed (ghosts.go).

// findAway finds the store's directories that seem to be without their disk: they are on the system's, blocks have landed
// there, and no staging directory tells of that. The agent opens directories as it starts: it stays so until a restart.
func (s *Store) findAway(c *catalog) {
	for i, r := range s.roots {
		if s.away[i] != nil {
			continue // it could not be opened
		}
		if _, err := r.Lstat(stagingDir); !errors.Is(err, fs.ErrNotExist) || s.device(i) != s.system {
			continue
		}
		if c.landedIn(s, i) {
			s.away[i] = &awayError{fmt.Errorf("%s is not mounted: blocks that landed there are not in it; mount it and restart the agent, or, if they are gone for good, make the directory %s and restart",
				s.Paths[i], filepath.Join(s.Paths[i], stagingDir))}
		}
	}
}

// Away says why a directory of the store's is taken for one without its disk; nil: it is not.
func (s *Store) Away(path string) error {
	if i := slices.Index(s.Paths, filepath.Clean(path)); i >= 0 && i < len(s.away) {
		return s.away[i]
	}
	return nil
}

// awayFrom says why a block that lies in place is not there, if its store's disk is not, or the directory is not its store's any more.
func awayFrom(stores []*Store, r record) error {
	s := storeOf(stores, BlockID(r.ID))
	if s == nil {
		return nil
	}
	for _, p := range r.Placed {
		switch {
		case p.Root >= len(s.away):
			return &awayError{fmt.Errorf("it landed in a directory that was taken out of the paths of store %s", s.Name)}
		case s.away[p.Root] != nil:
			return s.away[p.Root]
		}
	}
	return nil
}

func (s *Store) device(root int) uint64 {
	info, err := s.roots[root].Stat(".")
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

// landedIn reports whether files are on record in one of a store's directories.
func (c *catalog) landedIn(s *Store, root int) (found bool) {
	_ = c.view(func(tx *bbolt.Tx) error {
		of := []byte(s.Name + "/")
		cur := tx.Bucket(bucketBlocks).Cursor()
		for k, v := cur.Seek(of); bytes.HasPrefix(k, of) && !found; k, v = cur.Next() {
			r, err := parseRecord(v)
			found = err == nil && r.Segment == 0 && slices.ContainsFunc(r.Placed, func(p placed) bool { return p.Root == root })
		}
		return nil
	})
	return found
}
