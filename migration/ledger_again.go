package migration

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"os"
	"strings"
)

// A block may have several lines among what was moved: it changed and was carried once more, or broke at its peer after its
// receipt, and a line that follows voids the one before, so that a crash finds the two in their order. Its last line counts,
// and none where the block was lost after all: once the drain ends there are no others.

// voided is the outcome of a line that voids the one before it of the same block.
const voided Outcome = "voided"

// void takes back that a block was moved.
func (l *ledger) void(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.summary.Moved = l.summary.Moved.plus(Count{-1, -e.Bytes})
	l.several = true
	e.Outcome = voided
	l.line = e.AppendLine(l.line[:0])
	l.write(Moved)
}

// spend notes, in the account of a drain that is over, that a peer has no copy any more of what a line says was moved: the
// line then names no version. It changes one byte in place, which costs no memory, comes in no reader's way, and needs no
// room on a full disk. The file keeps its time, which tells when something moved last.
func spend(dir string, e Entry, end int64) (err error) {
	f, err := os.OpenFile(ledgerPath(dir, Moved), os.O_RDWR, 0)
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

// newest returns the last lines of what was moved that are about these blocks.
func (l *ledger) newest(broken []Broken) (map[BlockID]Entry, error) {
	lines := make(map[BlockID]Entry, len(broken))
	asked := make(map[BlockID]bool, len(broken))
	for _, b := range broken {
		asked[b.ID] = true
	}
	if err := l.written(); err != nil {
		return nil, err
	}
	for e, err := range readLedger(ledgerPath(l.dir, Moved)) {
		if err != nil {
			return nil, err
		}
		if id := BlockID(e.ID); asked[id] {
			lines[id] = e
		}
	}
	return lines, nil
}

// written has the file hold all that was moved so far.
func (l *ledger) written() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[Moved]; f != nil && !l.closed {
		return f.w.Flush()
	}
	return nil
}

// onceMore says that what is moved from now on may have been moved before.
func (l *ledger) onceMore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.several = true
}

// severalTimes returns the blocks not all of whose lines count, once nothing more is moved.
func (l *ledger) severalTimes() (map[string]lastLine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.several {
		return nil, nil
	}
	for _, f := range l.files {
		if err := f.w.Flush(); err != nil {
			return nil, err
		}
	}
	return l.lastLines(ledgerPath(l.dir, Moved))
}

// lastLine is what becomes of a block's lines.
type lastLine struct {
	lines, at int   // how many there are, and the number of the last one
	void      bool  // nor does that count
	entry     Entry // that it is
}

// struck is the outcome of a line that does not count once its drain has ended. It is written over the one before, so that this needs
// no room: a block is lost where disks are full.
const struck Outcome = "past"

// settle strikes out the lines of what was moved that do not count, if a block has several.
func (l *ledger) settle() (err error) {
	path := ledgerPath(l.dir, Moved)
	last, err := l.lastLines(path)
	if err != nil || len(last) == 0 {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	n := -1
	for line, err := range ledgerLines(path) {
		if err != nil {
			return err
		}
		n++
		if is, has := last[line.ID]; !has || n == is.at && !is.void {
			continue
		}
		if err := strike(f, line); err != nil {
			return err
		}
		once := Count{-1, -line.Bytes}
		if line.Outcome == voided { // which was taken off when it was written
			once = Count{1, line.Bytes}
		}
		l.summary.Moved = l.summary.Moved.plus(once)
	}
	return nil
}

func strike(f *os.File, line ledgerLine) error {
	text, was := make([]byte, line.end-line.begin), appendQuoted([]byte(`"outcome":`), string(line.Outcome))
	if _, err := f.ReadAt(text, line.begin); err != nil {
		return err
	}
	at := bytes.Index(text, was)
	if at < 0 {
		return fmt.Errorf("strike out %s: its line in %s is another", line.ID, f.Name())
	}
	now := appendQuoted([]byte(`"outcome":`), string(struck))
	_, err := f.WriteAt(append(now, bytes.Repeat([]byte(" "), len(was)-len(now))...), line.begin+int64(at))
	return err
}

// named yields what was lost, and had a line: in memory, if the disk did not take it.
func (l *ledger) named() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for line := range bytes.Lines(l.lost.lines) {
			if e, err := parseLine(line); !yield(e, err) || err != nil {
				return
			}
		}
		for e, err := range readLedger(ledgerPath(l.dir, Lost)) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// lastLines finds the blocks not all of whose lines count. It keeps as many ids as there are of these, a few that only seem so,
// and 32 bits for a line.
func (l *ledger) lastLines(path string) (map[string]lastLine, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	const lineBytes = 64 // the shortest
	met := newMetIDs(32 * info.Size() / lineBytes)
	last := map[string]lastLine{}
	for e, err := range l.named() {
		if err != nil {
			return nil, err
		}
		met.add(e.ID)
	}
	for e, err := range readLedger(path) {
		if err != nil {
			return nil, err
		}
		if met.add(e.ID) {
			last[e.ID] = lastLine{}
		}
	}
	n := 0
	for e, err := range readLedger(path) {
		if err != nil {
			return nil, err
		}
		if is, has := last[e.ID]; has {
			last[e.ID] = lastLine{is.lines + 1, n, e.Outcome == voided, e}
		}
		n++
	}
	for e, err := range l.named() {
		if err != nil {
			return nil, err
		}
		if is, has := last[e.ID]; has {
			is.void = true
			last[e.ID] = is
		}
	}
	for id, is := range last {
		if is.lines == 1 && !is.void {
			delete(last, id)
		}
	}
	return last, nil
}

// metIDs remembers ids by a bit for each: it may take one for another, and never forgets one.
type metIDs struct {
	seed maphash.Seed
	bits []uint64
}

func newMetIDs(bits int64) metIDs { return metIDs{maphash.MakeSeed(), make([]uint64, bits/64+1)} }

// add reports whether the id seems to have been added before.
func (m metIDs) add(id string) bool {
	word, bit := m.at(id)
	had := *word&bit != 0
	*word |= bit
	return had
}

func (m metIDs) has(id string) bool {
	word, bit := m.at(id)
	return *word&bit != 0
}

func (m metIDs) at(id string) (word *uint64, bit uint64) {
	h := maphash.String(m.seed, id)
	return &m.bits[(h>>6)%uint64(len(m.bits))], 1 << (h % 64)
}
