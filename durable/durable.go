// Package durable replaces small files so that a crash or a power cut leaves the old one or the new one, whole, and never
// neither. It is for what must survive; bytes of blocks have their own, batched way (package migration).
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// draft begins the names of files that are not whole yet, here and in package certs.
const draft = ".new-"

// WriteFile puts data into path, mode 0600. When it returns nil, the content and the name are on disk.
func WriteFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, draft+"*") // mode 0600 from the start
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Sweep removes the drafts that a process killed amid a WriteFile has left in these directories. Nobody else may write there meanwhile.
func Sweep(dirs ...string) (err error) {
	for _, dir := range dirs {
		all, _ := os.ReadDir(dir) // a directory that is missing, or cannot be read, has no drafts to remove
		for _, e := range all {
			if strings.HasPrefix(e.Name(), draft) {
				err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
			}
		}
	}
	return err
}

// SyncDir makes the names in dir as durable as the files behind them.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Remove removes a file that may be gone already.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Dirs are the directories in dir that can be looked at, the oldest first.
func Dirs(dir string) (all []fs.FileInfo, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.IsDir() {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return all, err
}
