// Package smalldisk mounts file systems in memory that are soon full, for tests of what then happens.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// New returns a file system of its own with room for so many bytes, while the test runs. It skips the test of who may not mount any.
func New(t *testing.T, bytes int64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Mount(t, dir, fmt.Sprintf("size=%d", bytes))
	return dir
}

// Mount mounts one with these options (tmpfs(5)) in a directory.
func Mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skip("only root mounts file systems: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Fill leaves no room there.
func Fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 4096); err == nil; {
		_, err = f.Write(b)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
