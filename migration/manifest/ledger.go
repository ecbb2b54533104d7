package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Ledger is the account of one drain: three files of JSON lines in its directory. What was moved is appended as the
// receipts come, so a drain killed in the middle knows what it need not send again; what was skipped is written anew by
// each scan; what was lost is known at the end. Nothing waits for the ledger's disk: the truth about a moved block is at
// the peer, and after a crash of the whole machine there is nothing left to resume.
type Ledger struct {
	dir  string
	room *diskio.Allowance

	counting sync.Mutex // guards summary alone: Counts does not wait for the ledger's disk
	summary  Summary

	mu      sync.Mutex
	closed  bool
	several bool                   // a block may have several lines (see settle)
	files   map[Outcome]*linesFile // of all outcomes but Lost
	strikes *os.File               // the file of what was moved, to strike lines out; nil: none was yet
	lost    *lostLines
	err     error // the first write that failed: of what was moved or skipped, there are then only numbers
	line    []byte
}

type linesFile struct {
	f     *os.File
	w     *bufio.Writer
	wrote time.Time // when it was last written that something was moved; zero: never
}

// Open opens the account in dir. What was moved stays in it; what was skipped or lost is begun anew, but for the outcomes in keeps. once
// says that another pass follows this one. With an error the account is kept all the same: in numbers, and what is lost also by name, as long as there is
// memory. If the disk is full, the names of what is lost take the ballast's room.
func Open(dir string, keeps []Outcome, once bool, ballast *durable.Ballast) (*Ledger, error) {
	l := &Ledger{dir: dir, files: map[Outcome]*linesFile{}, summary: Summary{Started: time.Now()}}
	var err error
	if l.lost, err = openLost(Path(dir, Lost), slices.Contains(keeps, Lost), ballast, once); err != nil {
		l.fail(err)
	}
	for o, flag := range map[Outcome]int{Moved: os.O_APPEND, Skipped: os.O_TRUNC} {
		if slices.Contains(keeps, o) {
			flag = os.O_APPEND
		}
		if flag == os.O_APPEND {
			mend(Path(dir, o))
		}
		f, err := os.OpenFile(Path(dir, o), os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			l.fail(err)
			continue
		}
		l.files[o] = &linesFile{f: f, w: bufio.NewWriterSize(f, 32<<10)}
		if is, err := f.Stat(); err == nil && is.Size() > 0 {
			l.files[o].wrote = is.ModTime()
		}
	}
	return l, l.err
}

// Within bounds what the account may write.
func (l *Ledger) Within(room *diskio.Allowance) { l.room, l.lost.room = room, room }

// GoOn begins with the figures of what earlier runs moved. several says that some of those blocks may have several lines.
func (l *Ledger) GoOn(moved inventory.Count, several bool) {
	l.summary.Moved, l.several = moved, several
}

// mend cuts off a last line that a crash left half written, so that the next is not glued to it. A file that cannot
// be mended cannot be opened for appending either, and that is an error of Open.
func mend(p string) {
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

func (l *Ledger) fail(err error) {
	if l.err == nil {
		l.err = fmt.Errorf("keep the manifest: %w", err)
	}
}

// Add records outcomes. It cannot fail: what could not be written is still counted, and Close says so.
func (l *Ledger) Add(entries ...Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return // from a goroutine that Drain.Run could not wait for: its blocks are accounted for
	}
	for _, e := range entries {
		l.Count(e)
		l.line = e.AppendLine(l.line[:0])
		if e.Outcome == Lost {
			l.lost.add(l.line, e.Bytes)
		} else {
			l.write(e.Outcome)
		}
	}
	l.flush()
}

// AddMoved records blocks that a peer has, and says how much that is. A drain does it for every block, so versions are written
// straight into the lines and never made by themselves.
func (l *Ledger) AddMoved(peer string, blocks iter.Seq[*inventory.Block]) (n inventory.Count) {
	return l.addOf(Moved, peer, blocks)
}

// AddPast records blocks that a peer has in a version that is not the newest: it is told to forget them.
func (l *Ledger) AddPast(peer string, blocks iter.Seq[*inventory.Block]) (n inventory.Count) {
	return l.addOf(Struck, peer, blocks)
}

func (l *Ledger) addOf(o Outcome, peer string, blocks iter.Seq[*inventory.Block]) (n inventory.Count) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range blocks {
		e := Entry{ID: string(b.ID), Bytes: b.Bytes(), Outcome: o, Peer: peer}
		n = n.Plus(inventory.Count{Blocks: 1, Bytes: e.Bytes})
		if l.closed {
			continue // as in Add
		}
		l.line = append(e.appendFields(l.line[:0]), `,"version":"`...)
		l.line = append(AppendVersion(*b, l.line), "\"}\n"...)
		l.write(Moved)
	}
	if !l.closed {
		if o == Moved {
			l.book(Moved, n)
		}
		if f := l.files[Moved]; f != nil {
			f.wrote = time.Now()
		}
		l.flush()
	}
	return n
}

// write adds the line to those of an outcome.
func (l *Ledger) write(o Outcome) {
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

// flush hands the lines of what was moved to the kernel, so that they outlive a kill -9.
func (l *Ledger) flush() {
	if f := l.files[Moved]; f != nil {
		if err := f.w.Flush(); err != nil {
			l.fail(err)
		}
	}
}

// Count adds a block of which another run has a line already.
func (l *Ledger) Count(e Entry) { l.book(e.Outcome, inventory.Count{Blocks: 1, Bytes: e.Bytes}) }

// book adds blocks to the figures of an outcome, or takes them off.
func (l *Ledger) book(o Outcome, n inventory.Count) {
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

// AddUnnamed records the loss of blocks whose names are lost too.
func (l *Ledger) AddUnnamed(n inventory.Count, why string) {
	l.Add(Entry{ID: unnamedID(n.Blocks), Bytes: n.Bytes, Outcome: Lost, Reason: why})
	l.book(Lost, inventory.Count{Blocks: n.Blocks - 1, Bytes: 0})
}

// Counts returns the figures so far. It does not wait for the ledger's disk.
func (l *Ledger) Counts() Summary {
	l.counting.Lock()
	defer l.counting.Unlock()
	return l.summary
}

// Close writes everything out, durably. Counts does not wait for that.
func (l *Ledger) Close() (Summary, error) {
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
	return l.Counts(), l.err
}

// seal writes everything out and takes nothing more. It reports whether blocks may have several lines.
func (l *Ledger) seal() (several bool) {
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
func (l *Ledger) finish() {
	l.counting.Lock()
	defer l.counting.Unlock()
	l.summary.Finished = time.Now()
}
