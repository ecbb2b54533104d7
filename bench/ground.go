package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ground is the work directory. Each run has a target directory in it.
//
// A file system that has just freed thousands of inodes is slow to make new ones: ext4 steps over those freed in the last
// seconds one by one, which once quadrupled the receiver's CPU time on small files (docs/benchmarks/transfers.md, "Traps"). So every run has
// a directory of its own below one with the +T attribute, which spreads its children over the block groups. A run's files
// are truncated when it is over, and deleted only at the end.
type ground struct {
	dir  string
	runs int
	trap error // why +T could not be set; nil: it was
}

func newGround(dir, standard string) (*ground, error) {
	if dir == "" {
		dir = standard // on the disk of the checkout, and ignored by git
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	g := &ground{}
	if g.dir, err = os.MkdirTemp(dir, "bench-"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(g.targets(), 0o755); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if out, err := exec.Command("chattr", "+T", g.targets()).CombinedOutput(); err != nil {
		g.trap = fmt.Errorf("%w %s", err, out)
	}
	return g, nil
}

func (g *ground) targets() string { return filepath.Join(g.dir, "targets") }

func (g *ground) fresh() (string, error) {
	g.runs++
	dir := filepath.Join(g.targets(), fmt.Sprintf("%03d", g.runs))
	return dir, os.Mkdir(dir, 0o755)
}

// empty frees the disk blocks of a target's files but not their inodes.
func (g *ground) empty(dir string) error {
	return filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(p) == ".log" {
			return err
		}
		return os.Truncate(p, 0)
	})
}

func (g *ground) close() error { return os.RemoveAll(g.dir) }

// syncFS writes everything of the directory's file system to its disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}

// treeBytes is the size of all regular files below dir.
func treeBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
