package fallback

import (
	"context"
	"fmt"
	"math"
	"os"
	"syscall"
)

// Room is what may still be put into a directory.
type Room struct {
	Bytes     int64
	Files     int64 // 0: they are not counted
	UnitBytes int64 // what a file of one byte takes, at least
}

// Takes returns how many of a Room's bytes a file of that size takes.
func (r Room) Takes(bytes int64) int64 { return (bytes + r.UnitBytes - 1) / r.UnitBytes * r.UnitBytes }

// mostUnit bounds UnitBytes: file systems keep small files in units of 4 KiB. A share may name its largest transfer instead.
const mostUnit = 4 << 10

// Room asks the file system for its room. Like every call, it is left behind if it hangs.
func (d *Directory) Room(ctx context.Context) (Room, error) {
	return do(ctx, d, "look into", func(c *call, root *os.Root) (is Room, err error) {
		err = c.in(func() error {
			dir, err := root.Open(".")
			if err != nil {
				return err
			}
			defer dir.Close()
			var s syscall.Statfs_t
			if err := syscall.Fstatfs(int(dir.Fd()), &s); err != nil {
				return err
			}
			is = Room{Bytes: int64(min(s.Bavail, math.MaxInt64/uint64(max(s.Bsize, 1)))) * s.Bsize, UnitBytes: min(max(s.Bsize, 1), mostUnit)}
			if s.Files > 0 && s.Ffree <= s.Files {
				is.Files = int64(min(s.Ffree, math.MaxInt64))
				if is.Files == 0 {
					is.Bytes = 0
				}
			}
			return nil
		})
		return is, err
	})
}

// Beside reports whether the directory lies on the file system of path, which goes with this machine: then nothing is mounted
// there. What it cannot tell (a subvolume of its own, say) it takes for a mount.
func (d *Directory) Beside(ctx context.Context, path string) (bool, error) {
	here, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	there, err := do(ctx, d, "look into", func(c *call, root *os.Root) (info os.FileInfo, err error) {
		err = c.in(func() (err error) { info, err = root.Stat("."); return err })
		return info, err
	})
	if err != nil {
		return false, err
	}
	a, ok := here.Sys().(*syscall.Stat_t)
	b, too := there.Sys().(*syscall.Stat_t)
	if !ok || !too {
		return false, fmt.Errorf("%s: the system does not say on which file system it is", d.path)
	}
	return a.Dev == b.Dev, nil
}
