package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// part is a large block in whose middle the stream broke off. The peer keeps what came, and another lane to it goes on with the rest. What
// was read once is not read again, for the checksums of what was sent are here. If the peer does not come back soon, others get the block
// from its beginning.
type part struct {
	plan.Entry
	open []byte   // its opening
	sums []uint32 // of the chunks that were sent
	why  string   // the stream broke off
}

// resumePatience is how long a part waits for a lane to its peer at the most, where others may take it.
const resumePatience = 5 * time.Second

// keepPart keeps what is known of the block that the lane broke off in.
func (l *lane) keepPart(err error) {
	if !l.partly || len(l.sums) < wire.ResumeLeast/wire.ChunkBytes {
		return
	}
	e, ok := l.books.forget(l.last)
	if !ok {
		return
	}
	p := &part{e, bytes.Clone(l.payload), slices.Clone(l.sums), fmt.Sprintf("sent to %s: %s", l.peer.Node, err)}
	l.peers.keep(l.peer, p)
	l.awaitPeer(l.peer, p)
}

// awaitPeer gives the part to others once its patience is over, if there are any, or if the drain has no deadline. A peer that stood still
// has what came for keptFor after it goes on.
func (ls *lanes) awaitPeer(peer *peerState, p *part) {
	time.AfterFunc(max(lookAtPeers, ls.patience(p)), func() {
		if until := ls.out.until(context.Background()); time.Now().Before(until) && ls.peers.waitsAlone(peer, p) {
			ls.awaitPeer(peer, p)
			return
		}
		ls.peers.releaseParts(peer, p)
	})
}

// waitsAlone reports whether a part waits, and nobody but its peer may take it.
func (ps *peers) waitsAlone(peer *peerState, p *part) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, other := range ps.known {
		if other != peer && other.failures == 0 && !other.gone {
			return false
		}
	}
	return !ps.fallback && slices.Contains(peer.parts, p)
}

// patience returns how long a part waits for its peer. Near the deadline it is short enough to leave another peer the time for the whole
// block, if any could have it in time.
func (ls *lanes) patience(p *part) time.Duration {
	until := ls.out.until(context.Background())
	if until.IsZero() {
		return resumePatience
	}
	left := time.Until(until)
	if rate := ls.peers.typical(); rate > 0 && float64(p.Bytes()) > rate*left.Seconds() {
		return resumePatience // nobody else can have it in time
	}
	return min(resumePatience, max(0, left)/8)
}

// keep keeps a part for another lane to its peer.
func (ps *peers) keep(peer *peerState, p *part) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	peer.parts = append(peer.parts, p)
}

// takePart returns a block to go on with at the peer; nil: there is none.
func (ps *peers) takePart(peer *peerState) *part {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(peer.parts) == 0 {
		return nil
	}
	p := peer.parts[0]
	peer.parts = peer.parts[1:]
	return p
}

// releaseParts gives parts, or all of a peer's, back to the plan.
func (ps *peers) releaseParts(peer *peerState, only ...*part) {
	ps.mu.Lock()
	var gone []*part
	peer.parts = slices.DeleteFunc(slices.Clone(peer.parts), func(p *part) bool {
		goes := len(only) == 0 || slices.Contains(only, p)
		if goes {
			gone = append(gone, p)
		}
		return goes
	})
	ps.mu.Unlock()
	for _, p := range gone {
		past := p.Met()
		past.Attempts++
		past.Shun, past.Shunned, past.Unanswered = peer.Node, time.Now().Add(2*backOff(past.Attempts)), true
		ps.plan.GiveBack(p.After(past), 0, p.why)
	}
}

// releaseAllParts gives back all parts: no lane goes on with them any more.
func (ps *peers) releaseAllParts() {
	ps.mu.Lock()
	all := slices.Clone(ps.fan.order)
	ps.mu.Unlock()
	for _, p := range all {
		ps.releaseParts(p)
	}
}

// asItWas reports whether nothing has happened to the files of a part, not even something that leaves their content alone: only checksums
// are left of what was sent, to compare with.
func (l *lane) asItWas(e plan.Entry) bool {
	for i := range e.Members {
		m, dir := e.Members[i], l.source.dirOf(e.Block, i)
		err := l.onDisk(dir, func() error {
			r, err := l.source.openMember(e.Block, i)
			if err != nil {
				return err
			}
			return errors.Join(inventory.StillSame(r, m), r.Close())
		})
		if err != nil {
			return false
		}
	}
	return true
}

// ask says which block the lane goes on with, and returns how much of it the peer has.
func (l *lane) ask(ctx context.Context, p *part) (bytes int64, err error) {
	if err := l.flush(ctx); err != nil {
		return 0, err
	}
	defer l.flow.rest()() // the wait says nothing of how fast the link is
	late := time.NewTimer(dialTimeout)
	defer late.Stop()
	for {
		select {
		case h := <-l.have:
			if h.Transfer != l.last {
				continue
			}
			l.now = time.Now()
			return h.Bytes, nil
		case <-late.C:
			return 0, fmt.Errorf("%s does not say how much it has of %s", l.peer.Node, p.ID)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// skip takes the checksums of what the peer has of a member from what was sent before.
func (l *lane) skip(p *part, m inventory.Member, bytes int64) error {
	chunks := int((bytes + wire.ChunkBytes - 1) / wire.ChunkBytes)
	if at := len(l.sums); bytes != m.Bytes && bytes%wire.ChunkBytes != 0 || at+chunks > len(p.sums) {
		return fmt.Errorf("%s says that it has %d bytes of %s: that was not sent", l.peer.Node, bytes, p.ID)
	}
	for range chunks {
		l.note(p.sums[len(l.sums)])
	}
	return nil
}

// note takes in the checksum of the next chunk.
func (l *lane) note(sum uint32) {
	l.sum.Chunk(sum)
	if l.keeps {
		l.sums = append(l.sums, sum)
	}
}

// forward makes a member be read from at on.
func forward(r io.Reader, at int64) error {
	s, ok := r.(io.Seeker)
	if !ok {
		return fmt.Errorf("%T cannot be read from the middle", r)
	}
	_, err := s.Seek(at, io.SeekStart)
	return err
}
