package fallback_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/fallback"
)

// A share that can neither link nor look says so, and not that somebody else has the name.
func TestDirectoryThatCannotLookIsNotTaken(t *testing.T) {
	d := fallback.NewDirectory(t.TempDir())
	err := d.Put(t.Context(), strings.Repeat("x", 300), 1, strings.NewReader("x"), true)
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "file name too long") || errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want the share's own words", err)
	}
}

// A directory tells the room of its file system, and what of a file is rounded up.
func TestDirectoryTellsItsRoom(t *testing.T) {
	dir := t.TempDir()
	smalldisk.Mount(t, dir, "size=1m,nr_inodes=5")
	d := fallback.NewDirectory(dir)
	is, err := d.Room(t.Context())
	if err != nil || is.Bytes != 1<<20 || is.Files != 4 || is.UnitBytes != 4096 || is.Takes(1) != 4096 || is.Takes(4097) != 8192 || is.Takes(0) != 0 {
		t.Errorf("got %+v %v, want 1 MiB, 4 files, pages", is, err)
	}
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 5000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := d.Room(t.Context()); err != nil || is.Bytes != 0 {
		t.Errorf("got %+v %v without an inode, want no room", is, err)
	}
}
