package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A block may have several lines among what was moved. It changed and was carried once more; or it broke at its peer after its
// receipt, and a line that follows voids the one before. Both are in one file, so that they are in their order after a crash. A
// block's last line counts, or none if the block was lost after all. Once the drain ends, all others are struck out.

// Voided is the outcome of a line that voids the one before it of the same block.
const Voided Outcome = "voided"

// Void takes back that a block was moved, by a line that voids the one before.
func (l *Ledger) Void(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.book(Moved, inventory.Count{Blocks: -1, Bytes: -e.Bytes})
	l.several = true
	e.Outcome = Voided
	l.line = e.AppendLine(l.line[:0])
	l.write(Moved)
}

// TakeBack takes back that a block was moved, by striking out the line about it that begins at begin. Where no such line is, it appends
// one that voids it. When a peer is gone, millions of blocks are taken back: as their lines are struck out, the account grows only by the
// lines of where they go next, and needs no settling.
func (l *Ledger) TakeBack(begin int64, e Entry) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	err := l.strike(begin, e.ID)
	if err == nil {
		l.book(Moved, inventory.Count{Blocks: -1, Bytes: -e.Bytes})
	}
	l.mu.Unlock()
	if err != nil {
		l.Void(e)
	}
}

// strike strikes out the line of a block that was moved. It opens the file, which is open for appending, a second time.
func (l *Ledger) strike(begin int64, id string) (err error) {
	if begin < 0 {
		return fmt.Errorf("strike out %s: nobody knows its line", id)
	}
	if l.strikes == nil {
		if l.strikes, err = os.OpenFile(Path(l.dir, Moved), os.O_RDWR, 0); err != nil {
			return err
		}
	}
	line, err := l.lineAt(begin)
	if err != nil {
		return fmt.Errorf("strike out %s: %w", id, err)
	}
	e, err := ParseLine(line)
	at := strikeOut(line, e.Outcome)
	if err != nil || e.ID != id || e.Outcome != Moved || at < 0 {
		return errors.Join(err, fmt.Errorf("strike out %s: its line in %s is another", id, l.strikes.Name()))
	}
	_, err = l.strikes.WriteAt(line[at:at+len(outcomeWords(Moved))], begin+int64(at))
	return err
}

const (
	shortLine   = 512
	longestLine = 32 << 10 // or longer: an id has at most 4 KiB, which are more in JSON
)

// lineAt reads the line that begins there, into the buffer in which lines are put together.
func (l *Ledger) lineAt(begin int64) ([]byte, error) {
	for most := shortLine; ; most = longestLine {
		l.line = slices.Grow(l.line[:0], most)[:most]
		n, err := l.strikes.ReadAt(l.line, begin)
		if end := bytes.IndexByte(l.line[:n], '\n'); end >= 0 {
			return l.line[:end+1], nil
		}
		if most == longestLine || err != nil {
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
}

// outcomeWords are how a line says what became of its block.
func outcomeWords(o Outcome) []byte { return appendQuoted([]byte(`"outcome":`), string(o)) }

// strikeOut strikes out a line in memory, and returns where that changed it; -1: nowhere.
func strikeOut(line []byte, was Outcome) (at int) {
	words, now := outcomeWords(was), outcomeWords(Struck)
	if at = bytes.Index(line, words); at >= 0 {
		copy(line[at:], append(now, bytes.Repeat([]byte(" "), len(words)-len(now))...))
	}
	return at
}

// Spend notes, in the account of a drain that is over, that a peer has no copy any more of what a line says was moved: the
// line then names no version. It changes one byte in place, which costs no memory, comes in no reader's way, and needs no
// room on a full disk. The file keeps its time, which tells when something moved last.
func Spend(dir string, e Entry, end int64) (err error) {
	f, err := os.OpenFile(Path(dir, Moved), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	is, err := f.Stat()
	if err != nil {
		return err
	}
	_, modified, _ := strings.Cut(e.Version, modifiedAt)
	at, was := end-int64(len(modifiedAt+modified+"\"}\n")), make([]byte, len(modifiedAt))
	if _, err := f.ReadAt(was, at); err != nil || string(was) != modifiedAt {
		return errors.Join(fmt.Errorf("note that %s forgot %s: the line in %s is another", e.Peer, e.ID, f.Name()), err)
	}
	_, err = f.WriteAt([]byte("-"), at)
	return errors.Join(err, os.Chtimes(f.Name(), is.ModTime(), is.ModTime()))
}

// Newest returns, for each block asked for, the last line of it among what was moved.
func (l *Ledger) Newest(asked map[inventory.BlockID]bool) (map[inventory.BlockID]Entry, error) {
	lines := make(map[inventory.BlockID]Entry, len(asked))
	if err := l.Written(); err != nil {
		return nil, err
	}
	for e, err := range Read(Path(l.dir, Moved)) {
		if err != nil {
			return nil, err
		}
		if id := inventory.BlockID(e.ID); asked[id] {
			lines[id] = e
		}
	}
	return lines, nil
}

// Written hands all lines of what was moved so far to the kernel, where readers of the file find them.
func (l *Ledger) Written() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[Moved]; f != nil && !l.closed {
		return f.w.Flush()
	}
	return nil
}

// OnceMore says that what is moved from now on may have been moved before.
func (l *Ledger) OnceMore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.several = true
}

// LastLines returns the blocks not all of whose lines count. It is for when nothing more is moved.
func (l *Ledger) LastLines() (LastLines, error) {
	l.mu.Lock()
	several := l.several && !l.closed
	var err error
	for _, f := range l.files {
		if several {
			err = cmp.Or(err, f.w.Flush())
		}
	}
	l.mu.Unlock()
	if !several || err != nil {
		return newLastLines(), err
	}
	return l.lastLinesIn(Path(l.dir, Moved))
}

// Struck is the outcome of a line that does not count once its drain has ended. It is written over the line's former outcome, which
// needs no room: where blocks are lost, disks are often full.
const Struck Outcome = "past"

// settle strikes out the lines of what was moved that do not count, in an account that nobody writes to any more. It returns what that
// adds to the figures of what was moved.
func (l *Ledger) settle() (once inventory.Count, err error) {
	path := Path(l.dir, Moved)
	last, err := l.lastLinesIn(path)
	if err != nil || len(last.of) == 0 {
		return once, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return once, err
	}
	strikes := strikes{f: f}
	defer func() { err = errors.Join(err, strikes.flush(), f.Sync(), f.Close()) }()
	n := -1
	for line, err := range Lines(path) {
		if err != nil {
			return once, err
		}
		n++
		if is, has := last.at(line.ID); !has || is.counts(n) {
			continue
		}
		if err := strikes.strike(line); err != nil {
			return once, err
		}
		if line.Outcome == Voided { // Void took the block off the figures when it wrote the line
			once = once.Plus(inventory.Count{Blocks: 1, Bytes: line.Bytes})
		} else {
			once = once.Plus(inventory.Count{Blocks: -1, Bytes: -line.Bytes})
		}
	}
	return once, nil
}

// strikes strikes out lines of a file, in their order. They may be millions, so it writes a stretch at a time.
type strikes struct {
	f       *os.File
	stretch []byte // of the file
	begin   int64  // of the stretch
	dirty   bool
}

// stretchBytes is longer than any line.
const stretchBytes = 256 << 10

func (s *strikes) strike(line Line) error {
	if line.End > s.begin+int64(len(s.stretch)) {
		if err := s.flush(); err != nil {
			return err
		}
		s.stretch = slices.Grow(s.stretch[:0], stretchBytes)[:stretchBytes]
		n, err := s.f.ReadAt(s.stretch, line.Begin)
		if s.begin, s.stretch = line.Begin, s.stretch[:n]; line.End > s.begin+int64(n) {
			return fmt.Errorf("strike out %s: %w", line.ID, err)
		}
	}
	if strikeOut(s.stretch[line.Begin-s.begin:line.End-s.begin], line.Outcome) < 0 {
		return fmt.Errorf("strike out %s: its line in %s is another", line.ID, s.f.Name())
	}
	s.dirty = true
	return nil
}

func (s *strikes) flush() error {
	if !s.dirty {
		return nil
	}
	s.dirty = false
	_, err := s.f.WriteAt(s.stretch, s.begin)
	return err
}

// named yields the lost blocks that have a line: in the file, or in memory if the disk did not take it.
func (l *Ledger) named() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for line := range bytes.Lines(l.lost.lines) {
			if e, err := ParseLine(line); !yield(e, err) || err != nil {
				return
			}
		}
		for e, err := range Read(Path(l.dir, Lost)) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
