package migration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// lane is one connection to a peer: blocks go out one behind the other without waiting for receipts, receipts come back
// and settle them.
type lane struct {
	*lanes
	peer  *peerState
	conn  net.Conn
	flow  flow // of the goroutine that sends
	books books
	signs signs // of the peer

	buf      []byte
	sum      wire.Summer
	files    inventory.FileReader // where the last block was
	segments vault.Reader         // and the last ones of the vault

	whole   wire.Sum          // of the block that was sent: in a variable it would be an allocation
	members []wire.MemberSize // of the block that is sent, and its opening: kept for the next one's
	payload []byte

	greeted time.Time
	granted plan.Room    // then
	last    uint32       // transfer number
	partly  bool         // the newest block is not complete
	held    bool         // all of it that was read is in the buffer
	now     time.Time    // as the goroutine that sends last saw it: a look at the clock for every step is felt with small blocks
	fetched fetched      // since the last flush
	batch   []plan.Entry // what is not begun of it is in the books
	bulk    int          // how many blocks it may have
	cold    bool         // memory did not have all of the batch
	ahead   int          // for how many of its last blocks no disk was asked ahead
	work    diskio.Work  // on this node's disks

	keeps bool           // the block that is sent is large enough to go on with, should the stream break off
	sums  []uint32       // of its chunks so far
	part  *part          // to go on with; nil: the block begins
	have  chan wire.Have // what the peer has of it

	stuck  chan struct{} // closed when work does not come back
	hung   string        // the directory that it is on
	gaveUp sync.Once

	asksAgain atomic.Bool // the lane is to end, and another to ask the peer again what it has room for

	writing atomic.Bool // a piece to the peer
}

const (
	// laneBuffer is written at once: a chunk with its headers, or as many small blocks as have room.
	laneBuffer = wire.ChunkBytes + wire.HeaderBytes + 64<<10
	// laneLead has a chunk of a large block begin 64 bytes into a page. Some processors (AMD's, by their fast "rep movsb") are
	// slow to copy to a place that is 1 to 31 bytes further into its page than where it comes from: a page of the page
	// cache was copied behind the header of 16 bytes in 1.5 times the time, behind one of 8 in 3.5 (measured; docs/design/measured.md).
	laneLead = 64 - wire.HeaderBytes
	// maxBatch is how many blocks, if they are small, a lane is handed out at once: some fill the buffer.
	maxBatch = 128
	// dialTimeout is how long a peer may take to be reached and to greet, before others get its part.
	dialTimeout = 5 * time.Second
	// peerTimeout is how long a peer may neither take bytes nor answer for those that it took. Its disk is never more than a
	// window behind (WriteBehind), so this is a disk at 6 MB/s; and a third of the shortest notice is left to send again. A peer that
	// says that it is at work may take half of the time that is left (lanes.awaits).
	peerTimeout = 10 * time.Second
	// peerGone is how long a peer that owes something may say nothing at all: then five of its words (wire.AliveEvery) are missing. Four
	// lost packets in a row cost TCP three seconds: its timeout begins at 200 ms and doubles each time.
	peerGone = 5 * wire.AliveEvery
)

var (
	errPeerFull    = errors.New("full: no room for any block that is left")
	errPeerStalled = fmt.Errorf("it took nothing and answered nothing for %v", peerTimeout)
	errPeerGone    = fmt.Errorf("nothing was heard of it for %v: its machine or the way to it is gone", peerGone)
)

func (l *lane) busy(now time.Time) (string, time.Duration, bool) { return l.work.On(now) }

// giveUp leaves a lane to the directory that it cannot read from.
func (l *lane) giveUp(dir string) {
	l.gaveUp.Do(func() {
		l.hung = dir
		l.traffic.pledge(&l.flow.load, 0)
		close(l.stuck)
	})
}

// owed reports whether the peer has something to take or to answer. The block that is being read does not count: if that
// is slow, it is this node's disk.
func (l *lane) owed() bool {
	return l.books.owed() || l.writing.Load()
}

// stands returns a func that reports whether the peer owes something and its machine has acknowledged nothing since the last call. On a
// narrow link that many lanes share, the write of a single piece may take longer than peerTimeout: that is no standstill.
func (l *lane) stands() func() bool {
	var before int64
	return func() bool {
		now := acknowledged(l.conn)
		took := now != before
		before = now
		return l.owed() && !took
	}
}

// finish says that no more comes, and takes the receipts for what is on its way; after a fault, those that are here.
func (l *lane) finish(received <-chan struct{}, inOrder bool) {
	patience := receiptGrace / 10
	if inOrder {
		patience = receiptGrace
	}
	over := time.AfterFunc(patience, func() { wire.Cut(l.conn) })
	defer over.Stop()
	if c, ok := l.conn.(interface{ CloseWrite() error }); ok && inOrder {
		_ = c.CloseWrite() // a peer that does not hear it is cut off
	}
	<-received
}

func (l *lane) handshake(frames *wire.Reader) error {
	greeting := time.AfterFunc(dialTimeout, func() { wire.Cut(l.conn) })
	defer greeting.Stop()
	hi := wire.Hello{Node: l.source.node, Incident: l.incident, Alone: l.alone != nil && l.alone(), Advised: l.peers.toAdvised()}
	g, err := greet(l.conn, frames, l.peer.Node, hi)
	if err != nil {
		return err
	}
	l.books.room, l.granted = roomIn(g), roomIn(g)
	if !l.peers.granted(l.peer, g) {
		return errSurplus
	}
	return nil
}

// greet begins a stream to a peer, or says with a refusedError why there is none.
func greet(conn net.Conn, frames *wire.Reader, peer string, hi wire.Hello) (g wire.Grant, err error) {
	if _, err := conn.Write(wire.AppendFrame(nil, wire.FrameHello, 0, hi.Append(nil))); err != nil {
		return g, fmt.Errorf("greet %s: %w", peer, err)
	}
	f, err := frames.Next()
	if err != nil {
		return g, fmt.Errorf("greet %s: %w", peer, err)
	}
	switch f.Type {
	case wire.FrameGrant:
		return wire.ParseGrant(f.Payload)
	case wire.FrameRefuse:
		r, err := wire.ParseRefuse(f.Payload)
		if err != nil {
			return g, err
		}
		return g, &refusedError{r.Reason, time.Duration(r.RetryMillis) * time.Millisecond, r.Stays}
	default:
		return g, fmt.Errorf("greet %s: frame of type %d in reply", peer, f.Type)
	}
}

// wanted reports whether the newest transfer has not been answered. While the peer has seen nothing of it, it has not.
func (l *lane) wanted() bool {
	return l.held || l.books.has(l.last)
}

// receive settles blocks as their verdicts come, until the peer closes the stream.
func (l *lane) receive(ctx context.Context, frames *wire.Reader) error {
	space := make([]plan.Entry, 0, wire.VerdictsPerFrame)
	var busy time.Time // since when the peer says nothing but that it is at work; zero: it does not
	for {
		f, err := frames.Next()
		if err != nil {
			return fmt.Errorf("receipts from %s: %w", l.peer.Node, err)
		}
		l.signs.words.Add(1)
		if f.Type == wire.FrameAlive {
			continue
		}
		if f.Type == wire.FrameHave {
			h, err := wire.ParseHave(f.Payload)
			if err != nil {
				return fmt.Errorf("receipts from %s: %w", l.peer.Node, err)
			}
			select {
			case l.have <- h:
				l.signs.beat.Add(1)
			default: // it was not asked
			}
			continue
		}
		if f.Type != wire.FrameReceipts {
			return fmt.Errorf("receipts from %s: frame of type %d", l.peer.Node, f.Type)
		}
		verdicts, err := wire.ParseVerdicts(f.Payload)
		if err != nil {
			return fmt.Errorf("receipts from %s: %w", l.peer.Node, err)
		}
		if len(verdicts) > 0 {
			busy = time.Time{}
		} else if busy.IsZero() {
			busy = time.Now()
		}
		if !busy.IsZero() && !l.awaits(ctx, busy) && l.peers.elsewhere(l.peer) {
			return fmt.Errorf("it was at work for %v and answered nothing: others need as long", time.Since(busy).Round(time.Second))
		}
		l.signs.beat.Add(1)
		moved, refused := l.books.settle(verdicts, space)
		for _, r := range refused {
			l.refused(r.Entry, r.Verdict)
		}
		if len(moved) > 0 {
			l.books.trust()
			l.peers.moved(l.peer, moved)
			clear(moved)
		}
	}
}

// refused does what follows from a verdict that is no receipt.
func (l *lane) refused(e plan.Entry, v wire.Verdict) {
	why := describe(e.ID, l.peer.Node, errors.New(v.Reason)).Error()
	switch v.Code {
	case wire.VerdictFull:
		l.books.full(e)
		past := e.Met()
		past.Unanswered = false
		l.plan.GiveBack(e.After(past), 0, why)
	case wire.VerdictConflict:
		l.account.carryOut(ruling{Entry: e, outcome: manifest.Lost, why: why})
	default:
		past := e.Met()
		past.Attempts++
		past.Shun, past.Unanswered, past.Shunned = l.peer.Node, false, time.Now().Add(2*backOff(past.Attempts))
		l.plan.GiveBack(e.After(past), backOff(past.Attempts), why)
	}
}

// returnInflight gives back the blocks that the peer never answered for. The first of them may be why: if peers choke on it, it
// must not be the first that is sent to each of them again. After the deadline no lane takes them: the plan keeps them until the
// account is closed.
func (l *lane) returnInflight(ctx context.Context, err error) {
	failures := l.peers.failures(l.peer)
	why := "no receipt"
	if err != nil && ctx.Err() == nil {
		why = err.Error()
	}
	why = fmt.Sprintf("sent to %s: %s", l.peer.Node, why)
	shunned := time.Now().Add(2 * backOff(failures+1)) // others first
	first := true
	l.books.empty(func(e plan.Entry) {
		delay := time.Duration(0)
		past := e.Met()
		past.Shun, past.Shunned, past.Unanswered = l.peer.Node, shunned, true
		if first {
			past.Attempts++
			delay, first = backOff(past.Attempts), false
		}
		l.plan.GiveBack(e.After(past), delay, why)
	}, l.plan.PutBack)
}
