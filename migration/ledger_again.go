package migration

import (
	"bufio"
	"errors"
	"os"
)

// A block that broke at its peer after its receipt was not moved after all. What the account says of it by then is voided
// by a line that follows, so that a crash finds the two in their order; once the drain ends neither is left.

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
	l.voids = true
	f := l.files[Moved]
	if f == nil {
		return
	}
	e.Outcome = voided
	if _, err := f.w.Write(e.AppendLine(nil)); err != nil {
		l.fail(err)
	}
}

// newest returns the last lines of what was moved that are about these blocks.
func (l *ledger) newest(broken []Broken) (map[BlockID]Entry, error) {
	lines := make(map[BlockID]Entry, len(broken))
	asked := make(map[BlockID]bool, len(broken))
	for _, b := range broken {
		asked[b.ID] = true
	}
	l.mu.Lock()
	f, err := l.files[Moved], error(nil)
	if f != nil && !l.closed {
		err = f.w.Flush()
	}
	l.mu.Unlock()
	if err != nil {
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

// clear writes the lines of what was moved anew, without the voided ones. It keeps as many ids as there are of these.
func (l *ledger) clear() (err error) {
	path := ledgerPath(l.dir, Moved)
	until := map[string]int{} // the number of the line that voids those before
	n := 0
	for e, err := range readLedger(path) {
		if err != nil {
			return err
		}
		if e.Outcome == voided {
			until[e.ID] = n
		}
		n++
	}
	if len(until) == 0 {
		return nil
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(f.Name()))
		}
	}()
	defer f.Close()
	w := bufio.NewWriterSize(f, 64<<10)
	n = 0
	var line []byte
	for e, err := range readLedger(path) {
		if err != nil {
			return err
		}
		if last, is := until[e.ID]; !is || n > last {
			line = e.AppendLine(line[:0])
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		n++
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
