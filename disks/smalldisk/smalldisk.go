// Package smalldisk mounts small file systems in memory, for tests of what happens when they are full.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// New mounts a file system with room for so many bytes, and returns its directory. It is unmounted when the test ends. Where this
// process may not mount one, it skips the test.
func New(t *testing.T, bytes int64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Mount(t, dir, fmt.Sprintf("size=%d", bytes))
	return dir
}

// Mount mounts one with these options (tmpfs(5)) at a directory.
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

// Fill writes until there is no room left.
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
