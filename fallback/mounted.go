package fallback

import (
	"context"
	"fmt"
	"os"
	"syscall"
)

// Beside reports whether the directory lies on the file system of path, which goes with this machine: then nothing is mounted
// there. What it cannot tell (a subvolume of its own, say) it takes for a mount.
func (d *Directory) Beside(ctx context.Context, path string) (bool, error) {
	here, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	there, err := do(ctx, d, func(c *call, root *os.Root) (info os.FileInfo, err error) {
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
