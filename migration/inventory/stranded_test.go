package inventory

import (
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Stranded names what no peer could take, and nothing that is carried, is left alone, or may yet be read.
func TestStranded(t *testing.T) {
	b := Block{ID: "cache/-/f"}
	for _, c := range []struct {
		what string
		item Item
		err  error
		want string
		dir  bool
	}{
		{"a block", Item{Block: b}, nil, "", false},
		{"a temporary file", Item{Block: b, Skip: "temporary file"}, nil, "", false},
		{"a name that is no id", Item{Block: b, Stays: "rename the file: it has a tab"}, nil, "cache/-/f: rename the file: it has a tab", false},
		{"a file that its disk does not give", Item{Block: b}, &fs.PathError{Op: "stat", Path: "f", Err: unix.EIO}, "cache/-/f: stat f: input/output error", false},
		{"a directory that cannot be listed", Item{}, &UnlistedError{Root: "/mnt/d0/cache", Dir: "x", Err: unix.EACCES}, "/mnt/d0/cache/x: permission denied", true},
		{"a disk that does not answer", Item{}, diskio.Silence("/mnt/d0"), "", false},
		{"a block on one", Item{Block: b}, diskio.Silence("/mnt/d0"), "", false},
		{"a directory on one", Item{}, &UnlistedError{Root: "/mnt/d0", Dir: ".", Err: diskio.Silence("/mnt/d0")}, "", false},
		{"values that cannot be read", Item{}, errors.New("read values: no JSON"), "", false},
	} {
		if got, dir := Stranded(c.item, c.err); got != c.want || dir != c.dir {
			t.Errorf("%s: got %q, %t, want %q, %t", c.what, got, dir, c.want, c.dir)
		}
	}
}
