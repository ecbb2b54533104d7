package clustertest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Flip flips a bit of content in every file below a directory of a node's disk that contains it, as rot would: the files' times and
// sizes stay the same. It returns the number of files.
func (c *Cluster) Flip(i int, dir string, content []byte) (flipped int) {
	c.t.Helper()
	err := filepath.WalkDir(filepath.Join(c.nodes[i].dir, dir), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		found := false
		for at := 0; ; at++ {
			next := bytes.Index(b[at:], content)
			if next < 0 {
				break
			}
			at, found = at+next, true
			if err := turn(p, int64(at+len(content)/2)); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
		flipped++
		if strings.HasSuffix(p, ".db") { // a database's times mean nothing to its owner, which has it mapped into memory
			return nil
		}
		return os.Chtimes(p, info.ModTime(), info.ModTime())
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // files come and go
		c.t.Fatal(err)
	}
	return flipped
}

func turn(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	return err
}
