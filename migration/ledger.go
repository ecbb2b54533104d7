package migration

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Outcome is what became of a block in a drain.
type Outcome string

const (
	Moved   Outcome = "moved"   // durable at the peer named
	Lost    Outcome = "lost"    // it was ours to carry and no peer has it
	Skipped Outcome = "skipped" // it was not ours to carry: unfinished, not a block, or gone by itself
)

// Entry is one line of a manifest.
type Entry struct {
	ID      string  `json:"id"`
	Bytes   int64   `json:"bytes"`
	Outcome Outcome `json:"outcome"`
	Peer    string  `json:"peer,omitempty"`
	Reason  string  `json:"reason,omitempty"`

	// Version stands for the content that was moved (sizes and modification times), so that a drain resumed after a
	// crash sends what changed since and nothing else. See appendVersion.
	Version string `json:"version,omitempty"`
}

// Summary is a manifest without its entries.
type Summary struct {
	Started  time.Time
	Finished time.Time
	Moved    inventory.Count
	Lost     inventory.Count
	Skipped  inventory.Count
}

// Total counts every block that the drain met.
func (s Summary) Total() inventory.Count {
	return inventory.Count{Blocks: s.Moved.Blocks + s.Lost.Blocks + s.Skipped.Blocks, Bytes: s.Moved.Bytes + s.Lost.Bytes + s.Skipped.Bytes}
}

// ledger is the account of one drain: three files of JSON lines in its directory. What was moved is appended as the
// receipts come, so a drain killed in the middle knows what it need not send again; what was skipped is written anew by
// each scan; what was lost is known at the end. Nothing waits for the ledger's disk: the truth about a moved block is at
// the peer, and after a crash of the whole machine there is nothing left to resume.
type ledger struct {
	dir  string
	room *diskio.Allowance

	counting sync.Mutex // guards summary alone: whoever asks how far the drain is does not wait for the ledger's disk
	summary  Summary

	mu      sync.Mutex
	closed  bool
	several bool                    // a block may have several lines (see settle)
	files   map[Outcome]*ledgerFile // but for what was lost
	strikes *os.File                // what was moved, to strike lines out; nil: none were
	lost    *lostLines
	err     error // the first write that failed: of what was moved or skipped, there are then only numbers
	line    []byte
}

type ledgerFile struct {
	f     *os.File
	w     *bufio.Writer
	wrote time.Time // that something was moved, the last time; zero: never
}

// openLedger opens the account in dir. once: of a pass that another one follows.
func openLedger(dir string, goesOn, once bool, ballast *durable.Ballast) (*ledger, error) {
	l := &ledger{dir: dir, files: map[Outcome]*ledgerFile{}, summary: Summary{Started: time.Now()}}
	var err error
	if l.lost, err = openLost(ledgerPath(dir, Lost), goesOn, ballast, once); err != nil {
		l.fail(err)
	}
	mendLedger(ledgerPath(dir, Moved))
	for o, flag := range map[Outcome]int{Moved: os.O_APPEND, Skipped: os.O_TRUNC} {
		if goesOn {
			flag = os.O_APPEND
		}
		f, err := os.OpenFile(ledgerPath(dir, o), os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			l.fail(err)
			continue
		}
		l.files[o] = &ledgerFile{f: f, w: bufio.NewWriterSize(f, 32<<10)}
		if is, err := f.Stat(); err == nil && is.Size() > 0 {
			l.files[o].wrote = is.ModTime()
		}
	}
	return l, l.err
}

// within has the account take no more than is allowed.
func (l *ledger) within(room *diskio.Allowance) { l.room, l.lost.room = room, room }

// goOn begins with what earlier runs moved; several: of which blocks may have more lines.
func (l *ledger) goOn(moved inventory.Count, several bool) {
	l.summary.Moved, l.several = moved, several
}

// mendLedger cuts off a last line that a crash left half written, so that the next is not glued to it. A file that cannot
// be mended cannot be opened for appending either, which is told there.
func mendLedger(p string) {
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	tail := make([]byte, min(end, 64<<10)) // longer than any line: an id has at most 4 KiB, a reason less
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err != nil {
		return
	}
	if whole := bytes.LastIndexByte(tail, '\n') + 1; whole < len(tail) { // else the file keeps its time, which tells when something moved last
		_ = f.Truncate(end - int64(len(tail)-whole))
	}
}

func ledgerPath(dir string, o Outcome) string { return filepath.Join(dir, string(o)+".jsonl") }

func (l *ledger) fail(err error) {
	if l.err == nil {
		l.err = fmt.Errorf("keep the manifest: %w", err)
	}
}

// add records outcomes. It cannot fail: what could not be written is still counted, and close says so.
func (l *ledger) add(entries ...Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return // from somebody whom Run could not wait for: his blocks are accounted for
	}
	for _, e := range entries {
		l.count(e)
		l.line = e.AppendLine(l.line[:0])
		if e.Outcome == Lost {
			l.lost.add(l.line, e.Bytes)
		} else {
			l.write(e.Outcome)
		}
	}
	l.flush()
}

// moved records blocks that a peer has, and says how much that is. A drain does it for every block, so versions are written
// straight into the lines and never made by themselves.
func (l *ledger) moved(peer string, blocks iter.Seq[*inventory.Block]) (n inventory.Count) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range blocks {
		e := Entry{ID: string(b.ID), Bytes: b.Bytes(), Outcome: Moved, Peer: peer}
		n = n.Plus(inventory.Count{Blocks: 1, Bytes: e.Bytes})
		if l.closed {
			continue // as in add
		}
		l.line = append(e.appendFields(l.line[:0]), `,"version":"`...)
		l.line = append(appendVersion(*b, l.line), "\"}\n"...)
		l.write(Moved)
	}
	if !l.closed {
		l.book(Moved, n)
		if f := l.files[Moved]; f != nil {
			f.wrote = time.Now()
		}
		l.flush()
	}
	return n
}

// write adds the line to those of an outcome.
func (l *ledger) write(o Outcome) {
	if f := l.files[o]; f != nil {
		err := l.room.Take(len(l.line))
		if err == nil {
			_, err = f.w.Write(l.line)
		}
		if err != nil {
			l.fail(err)
		}
	}
}

// flush has what was moved outlive a kill -9.
func (l *ledger) flush() {
	if f := l.files[Moved]; f != nil {
		if err := f.w.Flush(); err != nil {
			l.fail(err)
		}
	}
}

func (l *ledger) count(e Entry) { l.book(e.Outcome, inventory.Count{Blocks: 1, Bytes: e.Bytes}) }

// book adds blocks to the figures of an outcome, or takes them off.
func (l *ledger) book(o Outcome, n inventory.Count) {
	l.counting.Lock()
	defer l.counting.Unlock()
	c := &l.summary.Moved
	switch o {
	case Lost:
		c = &l.summary.Lost
	case Skipped:
		c = &l.summary.Skipped
	}
	*c = c.Plus(n)
}

// addUnnamed records the loss of blocks whose names are lost too.
func (l *ledger) addUnnamed(n inventory.Count, why string) {
	l.add(Entry{ID: unnamedID(n.Blocks), Bytes: n.Bytes, Outcome: Lost, Reason: why})
	l.book(Lost, inventory.Count{Blocks: n.Blocks - 1, Bytes: 0})
}

func (l *ledger) counts() Summary {
	l.counting.Lock()
	defer l.counting.Unlock()
	return l.summary
}

// close writes everything out, durably. Whoever asks how far the drain is does not wait for that.
func (l *ledger) close() (Summary, error) {
	if l.seal() {
		once, err := l.settle()
		l.book(Moved, once)
		l.mu.Lock()
		if err != nil {
			l.fail(err)
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[Moved]; f != nil && !f.wrote.IsZero() { // by the clock that tells how long ago it moved (newClaims)
		_ = os.Chtimes(f.f.Name(), f.wrote, f.wrote)
	}
	return l.counts(), l.err
}

// seal takes nothing more, and reports whether blocks may have several lines.
func (l *ledger) seal() (several bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.finish()
	if err := l.lost.close(); err != nil {
		l.fail(err)
	}
	for _, f := range l.files {
		if err := cmp.Or(f.w.Flush(), f.f.Sync(), f.f.Close()); err != nil {
			l.fail(err)
		}
	}
	if l.strikes != nil {
		_ = l.strikes.Close()
	}
	return l.several
}

// finish notes when the drain ended.
func (l *ledger) finish() {
	l.counting.Lock()
	defer l.counting.Unlock()
	l.summary.Finished = time.Now()
}

// Entries reads the manifest of the drain kept in dir: the lost first, because that is what people look for.
func Entries(dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, o := range []Outcome{Lost, Skipped, Moved} {
			for e, err := range readLedger(ledgerPath(dir, o)) {
				if e.Outcome == voided {
					continue // by a drain that has not ended
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// readLedger yields the whole lines of a ledger file; a last line that a crash cut short is no entry.
func readLedger(p string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for line, err := range ledgerLines(p) {
			if !yield(line.Entry, err) {
				return
			}
		}
	}
}

// ledgerLine is an entry, and where its line begins and ends in the file.
type ledgerLine struct {
	Entry
	begin, end int64
}

// ledgerLines yields the lines of a ledger file, but for those that do not count any more (settle).
func ledgerLines(p string) iter.Seq2[ledgerLine, error] {
	return func(yield func(ledgerLine, error) bool) {
		for line, err := range allLines(p) {
			if line.Outcome != struck && !yield(line, err) {
				return
			}
		}
	}
}

// allLines yields those too, of which peers may have what they say was moved.
func allLines(p string) iter.Seq2[ledgerLine, error] {
	return func(yield func(ledgerLine, error) bool) {
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(ledgerLine{}, fmt.Errorf("read the manifest: %w", err))
			return
		}
		defer f.Close()
		r, end := bufio.NewReaderSize(f, 64<<10), int64(0)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(ledgerLine{}, fmt.Errorf("read the manifest: %w", err))
				}
				return
			}
			begin := end
			end += int64(len(line))
			e, err := parseLine(line)
			if err != nil {
				yield(ledgerLine{}, fmt.Errorf("read the manifest %s: %w", p, err))
				return
			}
			if !yield(ledgerLine{e, begin, end}, nil) {
				return
			}
		}
	}
}
