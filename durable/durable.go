// Package durable replaces small files so that a crash or a power cut leaves the old one or the new one, whole, and never
// neither. It is for what must survive; bytes of blocks have their own, batched way (package migration).
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile puts data into path, mode 0600. When it returns nil, the content and the name are on disk.
func WriteFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600 from the start
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

// SyncDir makes the names in dir as durable as the files behind them.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
