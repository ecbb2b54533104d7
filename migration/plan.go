package migration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// plan is the ordered list of blocks to move, filled by the scan while the lanes empty it. Blocks of one rank leave in
// the order in which they were found; a lower rank leaves first. Each rank is a spool file, so a plan of ten million
// blocks costs the memory of a few buffers. When the disk that holds the spools is full, the plan keeps what it can in
// memory and makes the scan wait: a full disk must not end a drain.
type plan struct {
	dir string

	mu          sync.Mutex
	spools      [ranks]*spool
	returned    []entry // came back from a lane, or fits no lane's room now
	outstanding int     // handed out, not yet done or returned
	sealed      bool    // nothing will be added any more
	spoolErr    error
	changed     chan struct{} // closed and replaced whenever anything above changes
}

// entry is a block on its way.
type entry struct {
	Block
	attempts int       // that failed
	due      time.Time // not before
	why      string    // what went wrong last
}

const (
	ranks = 48
	// maxReturned bounds what waits in memory for a peer with more room.
	maxReturned = 1024
	// maxUnspooled bounds what a plan keeps in memory when it cannot write its spools.
	maxUnspooled = 4 << 20
	spoolBuffer  = 64 << 10
)

// errNoRoom is next's answer when blocks are left but none is small enough.
var errNoRoom = errors.New("no block fits")

func newPlan(dir string) *plan { return &plan{dir: dir, changed: make(chan struct{})} }

// rank orders blocks by value per byte when nothing better than their kind and size is known: what a block saves is about
// the same task again, so a small one saves more a byte, and a shuffle's loss fails whole stages where a cached block's
// only slows them: four times the weight.
func rank(b Block) int {
	r := bits.Len64(uint64(b.Bytes()))
	if b.Kind == KindShuffle {
		r -= 2
	}
	return min(max(r, 0), ranks-1)
}

func (p *plan) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// add appends a block. It waits, while ctx lasts, when the spool cannot be written and memory is used up.
func (p *plan) add(ctx context.Context, b Block) error {
	record := appendBlock(nil, b)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := rank(b)
	if p.spools[r] == nil {
		p.spools[r] = &spool{path: filepath.Join(p.dir, fmt.Sprintf("plan-%02d", r))}
	}
	for {
		if p.unspooled() < maxUnspooled {
			break
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := p.spools[r].push(record); err != nil && p.spoolErr == nil {
		p.spoolErr = err
	}
	p.wake()
	return nil
}

func (p *plan) unspooled() (n int) {
	for _, s := range p.spools {
		if s != nil {
			n += len(s.tail)
		}
	}
	return n
}

// trouble says why the plan had to be kept in memory, if it had to.
func (p *plan) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoolErr
}

// seal says that no more blocks come.
func (p *plan) seal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
	p.wake()
}

// take hands out the first block that is due and needs at most room bytes. ok is false when there is none now; wait is
// then how long until one that waits is due (0: nothing waits for the clock).
func (p *plan) take(room int64) (e entry, ok bool, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	tooBig := false
	for i, e := range p.returned {
		if d := e.due.Sub(now); d > 0 {
			if wait == 0 || d < wait {
				wait = d
			}
			continue
		}
		if e.Bytes() > room {
			tooBig = true
			continue
		}
		p.returned = append(p.returned[:i], p.returned[i+1:]...)
		p.outstanding++
		return e, true, 0, nil
	}
	for _, s := range p.spools {
		for s != nil {
			record, err := s.pop()
			if err != nil {
				return entry{}, false, 0, err
			}
			if record == nil {
				break
			}
			b, err := parseBlock(record)
			if err != nil {
				return entry{}, false, 0, fmt.Errorf("read plan %s: %w", s.path, err)
			}
			if b.Bytes() <= room {
				p.outstanding++
				p.wake() // memory for the scan
				return entry{Block: b}, true, 0, nil
			}
			p.returned = append(p.returned, entry{Block: b, why: "no peer has room"})
			tooBig = true
			if len(p.returned) >= maxReturned {
				return entry{}, false, wait, errNoRoom
			}
		}
	}
	switch {
	case tooBig:
		return entry{}, false, wait, errNoRoom
	case p.sealed && p.outstanding == 0 && len(p.returned) == 0:
		return entry{}, false, 0, io.EOF
	}
	return entry{}, false, wait, nil
}

// next waits for what take hands out. It returns io.EOF when every block is settled and no more come.
func (p *plan) next(ctx context.Context, room int64) (entry, error) {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		e, ok, wait, err := p.take(room)
		if ok || err != nil {
			return e, err
		}
		var due <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			return entry{}, ctx.Err()
		}
	}
}

// settle says that a block handed out is accounted for.
func (p *plan) settle(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding -= n
	p.wake()
}

// giveBack returns a block that was handed out, to be tried again after the delay.
func (p *plan) giveBack(e entry, delay time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.due, e.why = time.Now().Add(delay), why
	p.returned = append(p.returned, e)
	p.outstanding--
	p.wake()
}

// idle waits until nothing is left to hand out and nothing is handed out.
func (p *plan) idle(ctx context.Context) error {
	for {
		p.mu.Lock()
		idle := p.outstanding == 0 && len(p.returned) == 0
		for _, s := range p.spools {
			idle = idle && (s == nil || s.empty())
		}
		changed := p.changed
		p.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rest empties the plan: what was never sent, in the order in which it would have been.
func (p *plan) rest() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		p.mu.Lock()
		returned := p.returned
		p.returned = nil
		p.mu.Unlock()
		for _, e := range returned {
			if !yield(e, nil) {
				return
			}
		}
		for _, s := range p.spools {
			for s != nil {
				record, err := s.pop()
				if err != nil {
					yield(entry{}, err)
					return
				}
				if record == nil {
					break
				}
				b, err := parseBlock(record)
				if !yield(entry{Block: b}, err) || err != nil {
					return
				}
			}
		}
	}
}

// close removes the spools.
func (p *plan) close() error {
	var errs []error
	for _, s := range p.spools {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

// spool is a queue of records on disk: [4 bytes length][record]... The newest stay in memory until they fill a buffer.
type spool struct {
	path    string
	f       *os.File
	written int64 // bytes in the file
	read    int64 // bytes of the file already in head
	head    []byte
	tail    []byte
}

func (s *spool) empty() bool { return len(s.head) == 0 && len(s.tail) == 0 && s.read == s.written }

// push never loses the record: an error says that it stays in memory.
func (s *spool) push(record []byte) error {
	s.tail = binary.BigEndian.AppendUint32(s.tail, uint32(len(record)))
	s.tail = append(s.tail, record...)
	if len(s.tail) < spoolBuffer {
		return nil
	}
	if s.f == nil {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("spool the plan: %w", err)
		}
		s.f = f
	}
	if _, err := s.f.WriteAt(s.tail, s.written); err != nil {
		return fmt.Errorf("spool the plan: %w", err)
	}
	s.written += int64(len(s.tail))
	s.tail = s.tail[:0]
	return nil
}

// pop returns nil when the spool is empty. The record is valid until the next call.
func (s *spool) pop() ([]byte, error) {
	if len(s.head) < 4 || len(s.head) < 4+int(binary.BigEndian.Uint32(s.head)) {
		if err := s.refill(); err != nil {
			return nil, err
		}
		if len(s.head) == 0 {
			return nil, nil
		}
	}
	n := int(binary.BigEndian.Uint32(s.head))
	record := s.head[4 : 4+n]
	s.head = s.head[4+n:]
	return record, nil
}

func (s *spool) refill() error {
	if left := s.written - s.read; left > 0 {
		part := len(s.head)
		buf := make([]byte, part+int(min(left, spoolBuffer)))
		copy(buf, s.head)
		if _, err := s.f.ReadAt(buf[part:], s.read); err != nil {
			return fmt.Errorf("read the plan: %w", err)
		}
		s.read += int64(len(buf) - part)
		s.head = buf
		if len(buf) >= 4 && len(buf) >= 4+int(binary.BigEndian.Uint32(buf)) {
			return nil
		}
		return s.refill()
	}
	s.head = append(s.head, s.tail...)
	s.tail = nil
	return nil
}

func (s *spool) close() error {
	if s.f == nil {
		return nil
	}
	return errors.Join(s.f.Close(), os.Remove(s.path))
}

// appendBlock and parseBlock are the spool's record of a block.
func appendBlock(b []byte, blk Block) []byte {
	b = appendString(appendString(appendString(b, string(blk.ID)), blk.Kind), blk.Layout)
	b = binary.AppendUvarint(b, uint64(len(blk.Members)))
	for _, m := range blk.Members {
		b = binary.AppendVarint(appendString(b, m.Name), m.Bytes)
		b = binary.AppendVarint(b, m.ModTime.UnixNano())
		b = binary.AppendVarint(b, m.ctim)
		b = appendString(binary.AppendVarint(b, int64(m.root)), m.path)
	}
	return b
}

func parseBlock(record []byte) (blk Block, err error) {
	d := decoder{p: record}
	blk.ID, blk.Kind, blk.Layout = BlockID(d.string()), d.string(), d.string()
	for range min(d.uvarint(), maxMembers) {
		m := Member{Name: d.string(), Bytes: d.varint(), ModTime: time.Unix(0, d.varint()), ctim: d.varint()}
		m.root, m.path = int(d.varint()), d.string()
		blk.Members = append(blk.Members, m)
	}
	return blk, d.end("plan")
}

// settled reports whether every block is accounted for and no more come.
func (p *plan) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sealed || p.outstanding != 0 || len(p.returned) != 0 {
		return false
	}
	for _, s := range p.spools {
		if s != nil && !s.empty() {
			return false
		}
	}
	return true
}
