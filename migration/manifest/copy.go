package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Copy replaces the account in the directory to by the one in from, durably, and keeps the times of its files. An account of more than
// most bytes is refused; 0: none is. Nobody may write to either directory meanwhile. Copy returns when ctx ends, also where a disk hangs
// under one of the two: the goroutine that it leaves behind then replaces at most the one file that it is about to rename.
func Copy(ctx context.Context, from, to string, most int64) error {
	_, err := diskio.UnlessHung(ctx, func() (bool, error) { return true, copyAccount(ctx, from, to, most) })
	if err != nil {
		return fmt.Errorf("copy the account in %s to %s: %w", from, to, err)
	}
	return nil
}

func copyAccount(ctx context.Context, from, to string, most int64) error {
	if bytes := Bytes(from); most > 0 && bytes > most {
		return fmt.Errorf("it has %d bytes, more than %d: %w", bytes, most, syscall.ENOSPC)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, o := range []Outcome{Moved, Skipped, Lost} {
		if err := copyFile(ctx, Path(from, o), Path(to, o)); err != nil {
			return err
		}
	}
	return durable.SyncDir(to)
}

// Bytes returns the size of the account in a directory, as far as that can be told.
func Bytes(dir string) (bytes int64) {
	for _, o := range []Outcome{Moved, Skipped, Lost} {
		if is, err := os.Stat(Path(dir, o)); err == nil {
			bytes += is.Size()
		}
	}
	return bytes
}

// copyFile replaces a file by another, or removes it if there is none.
func copyFile(ctx context.Context, from, to string) (err error) {
	r, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return durable.Remove(to)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	is, err := r.Stat()
	if err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(to), ".account-*") // not under a name that a second copy takes, should this one hang
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.Remove(w.Name()))
		}
	}()
	for err == nil {
		if _, err = io.CopyN(w, r, stretchBytes); err == nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.Join(w.Sync(), os.Chtimes(w.Name(), is.ModTime(), is.ModTime()), ctx.Err())
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.Rename(w.Name(), to)
}
