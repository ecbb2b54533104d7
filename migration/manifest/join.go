package manifest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Join is Copy for an account in from that was begun without all lines of the one in to: what the latter says was moved comes first, as far
// as it can be read, and then the lines of from.
func Join(ctx context.Context, from, to string) error {
	_, err := diskio.UnlessHung(ctx, func() (bool, error) { return true, join(ctx, from, to) })
	if err != nil {
		return fmt.Errorf("join the account in %s to the one in %s: %w", from, to, err)
	}
	return nil
}

func join(ctx context.Context, from, to string) (err error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	both, err := os.MkdirTemp(to, ".account-*") // a join that hangs and goes on late changes nothing else
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(both)) }()
	if err := copyAccount(ctx, from, both, 0); err != nil {
		return err
	}
	moved := time.Time{}
	for _, dir := range []string{to, from} {
		if is, err := os.Stat(Path(dir, Moved)); err == nil && is.Size() > 0 {
			moved = is.ModTime()
		}
	}
	lines := func(yield func(Line, error) bool) {
		for line, err := range AllLines(Path(to, Moved)) {
			if err != nil {
				break // what cannot be read is no more than what nobody could read before
			}
			if !yield(line, nil) {
				return
			}
		}
		AllLines(Path(from, Moved))(yield)
	}
	if _, err := CopyLines(Path(both, Moved), lines, moved, func(Entry) bool { return true }); err != nil {
		return err
	}
	if _, err := (&Ledger{dir: both, lost: &lostLines{}}).settle(); err != nil {
		return err
	}
	if err := os.Chtimes(Path(both, Moved), moved, moved); err != nil {
		return err
	}
	return copyAccount(ctx, both, to, 0)
}

// CopyLines begins an account in the file to with those lines of others that keep accepts, and returns what they say was moved. The file
// gets the time moved: a file's time tells how long ago something was moved last.
func CopyLines(to string, lines iter.Seq2[Line, error], moved time.Time, keep func(Entry) bool) (kept inventory.Count, err error) {
	part := to + ".part"
	f, err := os.Create(part)
	if err != nil {
		return kept, err
	}
	w, text := bufio.NewWriterSize(f, 64<<10), []byte(nil)
	for line, fault := range lines {
		if err = fault; err != nil {
			break
		}
		if !keep(line.Entry) {
			continue
		}
		text = line.AppendLine(text[:0])
		if _, err = w.Write(text); err != nil {
			break
		}
		kept = kept.Plus(inventory.Count{Blocks: 1, Bytes: line.Bytes})
	}
	err = cmp.Or(err, w.Flush(), f.Close(), os.Chtimes(part, moved, moved)) // a writer that failed says so again
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return inventory.Count{}, errors.Join(err, os.Remove(part))
	}
	return kept, nil
}
