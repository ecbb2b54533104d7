package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// Adopt begins the account in dir with what earlier drains of this node moved: drains that were withdrawn, or that emptied one of its
// disks. Their peers still have most of those blocks. If dir has an account, or the earlier drains have none, Adopt does nothing. The drain
// in dir must then ask who still holds these blocks as it meets them (DrainConfig.Lapsed), and leave out those that are not here any more
// (DrainConfig.Adopted). Blocks that the fallback took are not adopted: nobody could say whether it still has them.
func Adopt(dir string, earlier ...string) (adopted inventory.Count, err error) {
	var from []string
	moved := map[string]time.Time{}
	for _, dir := range earlier {
		path := manifest.Path(dir, manifest.Moved)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
			continue
		}
		if err != nil {
			return adopted, fmt.Errorf("adopt an account: %w", err)
		}
		from, moved[path] = append(from, path), info.ModTime()
	}
	to := manifest.Path(dir, manifest.Moved)
	if info, err := os.Stat(to); len(from) == 0 || err == nil && info.Size() > 0 {
		return adopted, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return adopted, fmt.Errorf("adopt an account: %w", err)
	}
	slices.SortFunc(from, func(a, b string) int { return moved[a].Compare(moved[b]) }) // of several lines about a block the last one counts
	adopted, err = manifest.CopyLines(to, linesOf(from), moved[from[len(from)-1]], func(e manifest.Entry) bool {
		return e.Outcome == manifest.Moved && e.Tag() != "" && !strings.HasPrefix(e.Peer, lastresort.PeerPrefix)
	})
	if err != nil {
		return inventory.Count{}, fmt.Errorf("adopt an account: %w", err)
	}
	return adopted, nil
}

// linesOf yields the lines of some files, one file after the other, to the first fault.
func linesOf(paths []string) iter.Seq2[manifest.Line, error] {
	return func(yield func(manifest.Line, error) bool) {
		for _, path := range paths {
			for line, err := range manifest.AllLines(path) {
				if !yield(line, err) || err != nil {
					return
				}
			}
		}
	}
}

// leaveOut strikes adopted blocks out of the account that the first look through everything has not met: their engines deleted them before
// this drain began, so it has nothing to say of them. A block of that name that comes up yet is news.
func (v *survey) leaveOut() {
	if !v.adopted || v.own || len(v.source.only) > 0 || v.missed.Load() {
		return
	}
	gone := v.account.history.unmet()
	for line, err := range manifest.Lines(manifest.Path(v.dir, manifest.Moved)) {
		if err != nil {
			v.log.Warn("cannot read what an earlier drain moved: the manifest names blocks that are not here any more", "err", err)
			return
		}
		if gone.has(inventory.BlockID(line.ID)) {
			v.account.ledger.TakeBack(line.Begin, line.Entry)
			v.account.disown(line.Bytes)
		}
	}
}
