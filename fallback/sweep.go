package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// abandoned is the age at which the writer of an unfinished content is taken to be dead: no drain takes that long to put one.
const abandoned = 24 * time.Hour

// Sweep removes the contents that ours accepts and that were put before an instant; what killed writers left unfinished; and the
// directories that this emptied. With the zero time it removes no finished content. Several nodes may sweep at once.
func (d *Directory) Sweep(ctx context.Context, before time.Time, ours func(name string) bool) (removed int, err error) {
	return do(ctx, d, "remove what is old from", func(c *call, root *os.Root) (removed int, err error) {
		var ahead time.Duration
		if err := c.in(func() (err error) { ahead, err = d.ahead(root); return err }); err != nil {
			d.forget()
			return 0, err
		}
		dead := time.Now().Add(ahead - abandoned)
		from := unfinished
		if !before.IsZero() {
			from, before = ".", before.Add(ahead)
		}
		var emptied []string
		visit := func(name string, e fs.DirEntry, err error) error {
			c.goesOn()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil || !e.Type().IsRegular() {
				return nil // gone meanwhile, or nobody's business
			}
			limit := before
			if strings.HasPrefix(name, unfinished+"/") {
				limit = dead
			} else if !ours(name) {
				return nil
			}
			info, err := e.Info()
			if err != nil || !info.ModTime().Before(limit) {
				return nil
			}
			if root.Remove(name) == nil {
				removed++
				if dir := path.Dir(name); len(emptied) == 0 || emptied[len(emptied)-1] != dir {
					emptied = append(emptied, dir)
				}
			}
			return nil
		}
		err = c.in(func() error { return fs.WalkDir(root.FS(), from, visit) })
		slices.Sort(emptied)
		for _, dir := range slices.Backward(emptied) {
			_ = c.in(func() error { removeEmpty(root, dir); return nil }) // it says nothing
		}
		return removed, err
	})
}

// ahead returns by how much the clock that dates contents is ahead of this machine's. On a share that is its server's clock, and a
// machine whose own clock is wrong must not remove what all others have put there.
func (d *Directory) ahead(root *os.Root) (time.Duration, error) {
	if err := d.makeDirs(root, unfinished); err != nil {
		return 0, err
	}
	name := unfinished + "/" + rand.Text()
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close(), root.Remove(name)); err != nil {
		return 0, err
	}
	return time.Until(info.ModTime()), nil
}

// removeEmpty removes a directory and those above it, as far as they are empty. The one for unfinished contents stays: other nodes
// are about to write there.
func removeEmpty(root *os.Root, dir string) {
	for ; dir != "." && dir != unfinished; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			return
		}
	}
}
