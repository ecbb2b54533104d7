package migration

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
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
	part := to + ".part"
	f, err := os.Create(part)
	if err != nil {
		return adopted, fmt.Errorf("adopt an account: %w", err)
	}
	w, line := bufio.NewWriterSize(f, 64<<10), []byte(nil)
	for e, fault := range readLedger(from) {
		if err = fault; err != nil {
			break
		}
		if e.Outcome != Moved || e.tag() == "" || strings.HasPrefix(e.Peer, fallbackPeer) {
			continue
		}
		line = e.AppendLine(line[:0])
		if _, err = w.Write(line); err != nil {
			break
		}
		adopted = adopted.plus(Count{1, e.Bytes})
	}
	// It is as old as what it says: who asks how long ago something moved is told by its time.
	err = errors.Join(err, w.Flush(), f.Close(), os.Chtimes(part, was.ModTime(), was.ModTime()))
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return Count{}, errors.Join(fmt.Errorf("adopt an account: %w", err), os.Remove(part))
	}
	return adopted, nil
}
