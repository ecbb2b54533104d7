package migration

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Adopt begins the account in dir with what an earlier drain of this node moved, which was withdrawn: its peers have most of that
// still. Where dir has an account, or the other has none, it does nothing. A drain in dir must then ask who has what it meets
// (DrainConfig.Lapsed). What the fallback took is not adopted, since nobody could say whether it has it.
func Adopt(dir, earlier string) (adopted Count, err error) {
	to, from := ledgerPath(dir, Moved), ledgerPath(earlier, Moved)
	was, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return adopted, nil
	}
	if err != nil {
		return adopted, fmt.Errorf("adopt an account: %w", err)
	}
	if info, err := os.Stat(to); err == nil && info.Size() > 0 {
		return adopted, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return adopted, fmt.Errorf("adopt an account: %w", err)
	}
	adopted, err = copyLines(to, from, was.ModTime(), func(e Entry) bool {
		return e.Outcome == Moved && e.tag() != "" && !strings.HasPrefix(e.Peer, fallbackPeer)
	})
	if err != nil {
		return Count{}, fmt.Errorf("adopt an account: %w", err)
	}
	return adopted, nil
}

// copyLines has an account begin with the lines of one that are kept, and returns what these say was moved. It is as old as what it says:
// who asks how long ago something moved is told by its time.
func copyLines(to, from string, moved time.Time, keep func(Entry) bool) (kept Count, err error) {
	part := to + ".part"
	f, err := os.Create(part)
	if err != nil {
		return kept, err
	}
	w, text := bufio.NewWriterSize(f, 64<<10), []byte(nil)
	for line, fault := range allLines(from) {
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
		kept = kept.plus(Count{1, line.Bytes})
	}
	err = errors.Join(err, w.Flush(), f.Close(), os.Chtimes(part, moved, moved))
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return Count{}, errors.Join(err, os.Remove(part))
	}
	return kept, nil
}
