package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Readers are told of a lost block by its name, so this is the part of the account that must be written even when the disk
// is full, as it may well be on a node that nobody has room for. The file claims its room when the last pass begins, so that
// neither the lines of what was moved, nor the plan, nor another program can take it. If the disk was full before, the agent's
// ballast makes the room. Lines that find no room all the same, or that the disk does not take, wait in memory and are part of
// the account there.

const (
	// leastLostRoom has room for the names of some 15,000 blocks. It serves where no ballast tells by its size how many there are.
	leastLostRoom = 4 << 20
	// maxUnwritten bounds what waits in memory: some thousand blocks.
	maxUnwritten = 1 << 20
	lostBuffer   = 32 << 10
)

// lostLines writes the lines of what was lost, whole ones only.
type lostLines struct {
	room    *diskio.Allowance
	once    bool            // another pass follows, which names what this one cannot
	f       *os.File        // nil: it could not be opened
	end     int64           // of the last whole line in it
	lines   []byte          // that are not in the file
	tryAt   int             // how many bytes of lines there are when they are written
	why     error           // the last write that failed
	unnamed inventory.Count // blocks for whose lines there was no room in memory either
}

// openLost opens the file at path. With goesOn, an earlier run's lines stay in it and new ones follow.
func openLost(path string, goesOn bool, ballast *durable.Ballast, once bool) (*lostLines, error) {
	w := &lostLines{once: once, tryAt: lostBuffer}
	if once { // this pass names nothing as lost: the room is for the last one
		w.why = w.open(path, goesOn)
		return w, w.why
	}
	room := max(leastLostRoom, ballast.Bytes())
	prepare := func() error {
		if err := w.open(path, goesOn); err != nil {
			return err
		}
		return durable.Claim(w.f, room)
	}
	w.why = prepare()
	if durable.Full(w.why) && ballast.Free() {
		w.why = prepare()
	}
	if w.f != nil && durable.Full(w.why) {
		return w, nil // some lines may find room yet
	}
	return w, w.why
}

func (w *lostLines) open(path string, goesOn bool) error {
	if w.f != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if goesOn {
		mend(path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w.f = f
	if w.end, err = f.Seek(0, io.SeekEnd); err == nil && w.end > 0 && !goesOn {
		w.end, err = 0, f.Truncate(0) // an empty file is left alone: it keeps its room
	}
	return err
}

// add takes a line about so many bytes of blocks.
func (w *lostLines) add(line []byte, bytes int64) {
	if len(w.lines)+len(line) > maxUnwritten {
		w.unnamed = w.unnamed.Plus(inventory.Count{Blocks: 1, Bytes: bytes})
		return
	}
	if w.lines = append(w.lines, line...); len(w.lines) >= w.tryAt {
		_ = w.flush() // close tries once more, and says what is wrong
		w.tryAt = len(w.lines) + lostBuffer
	}
}

// flush writes what is in memory. What fails leaves the file as it was.
func (w *lostLines) flush() error {
	if len(w.lines) == 0 {
		return nil
	}
	if w.f == nil {
		return cmp.Or(w.why, os.ErrClosed)
	}
	if err := w.room.Take(len(w.lines)); err != nil {
		w.why = err
		return err
	}
	if _, err := w.f.Write(w.lines); err != nil {
		w.why = err
		_ = w.f.Truncate(w.end) // else half a line stays, which a reader passes by at the end of a file
		return err
	}
	w.end += int64(len(w.lines))
	w.lines = w.lines[:0]
	return nil
}

// close writes the lines that are left, then one for all blocks without a name, unless another pass names them, and gives back the room
// that was not needed.
func (w *lostLines) close() error {
	err := w.flush()
	if w.unnamed.Blocks > 0 && !w.once {
		e := Entry{ID: unnamedID(w.unnamed.Blocks), Bytes: w.unnamed.Bytes, Outcome: Lost, Reason: fmt.Sprintf("the account has no room for their names: %v", w.why)}
		w.lines = e.AppendLine(w.lines)
		err = w.flush()
	}
	if w.f == nil {
		return err
	}
	_ = w.f.Truncate(w.end) // what stays reserved goes with the incident
	return cmp.Or(err, w.f.Sync(), w.f.Close())
}

// unnamedID stands for blocks whose names are not known.
func unnamedID(blocks int64) string { return fmt.Sprintf("(%d blocks)", blocks) }

// Entries yields the manifest of a drain that has ended, with the lines that its disk did not take.
func (l *Ledger) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for line := range bytes.Lines(l.Unwritten()) {
			if e, err := ParseLine(line); !yield(e, err) || err != nil {
				return
			}
		}
		for e, err := range Entries(l.dir) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Unwritten returns the lines of what was lost that the ledger's disk did not take.
func (l *Ledger) Unwritten() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.lost.lines)
}
