package migration

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// lanes opens lanes to peers. It is what they have in common.
type lanes struct {
	cargo
	carriers *carriers
	peers    *peers
	out      *outflow
	traffic  *traffic
	// As in DrainConfig.
	incident string
	alone    func() bool
	dial     func(ctx context.Context, p Peer) (net.Conn, error)
}

// errSurplus ends a lane to a peer that is one too many.
var errSurplus = errors.New("others are faster")

// errAskAgain ends a lane whose peer's grant is old.
var errAskAgain = errors.New("the peer may have more room by now, or less")

// run sends blocks to one peer over one connection after another, until all blocks are settled (true), ctx ends, or
// another peer is to have its turn.
func (ls *lanes) run(ctx context.Context, p *peerState) (settled bool) {
	for ctx.Err() == nil {
		err := ls.connectAndSend(ctx, p)
		switch {
		case err == plan.ErrSettled:
			return true
		case ctx.Err() != nil || err == errSurplus:
			return false
		case diskio.IsSilent(err), err == errAskAgain:
			continue // that is no fault of the peer
		}
		rest := ls.peers.note(p, err)
		if ls.peers.turn(p) {
			return false
		}
		await.Sleep(ctx, rest)
	}
	return false
}

// connectAndSend returns ErrSettled when every block is settled.
func (ls *lanes) connectAndSend(ctx context.Context, p *peerState) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := ls.dial(dialing, ls.peers.heard(p.Node))
	if err != nil {
		return err
	}
	defer wire.Cut(conn)
	// When ctx ends nothing more is written. What went before may be answered; then it is over, whatever the peer does.
	silenced := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(silenced)
		conn.SetWriteDeadline(time.Now())
		time.AfterFunc(receiptGrace, func() { wire.Cut(conn) })
	})
	defer undo()

	l := &lane{
		lanes: ls, peer: p, conn: conn, buf: make([]byte, laneLead+laneBuffer)[laneLead:laneLead], sum: wire.NewSummer(),
		now: time.Now(), bulk: 1, have: make(chan wire.Have, 1), stuck: make(chan struct{}),
		flow: flow{conn: conn, out: ls.out, traffic: ls.traffic}, books: books{changed: make(chan struct{}, 1)},
	}
	l.files.Missed = l.fetchAhead
	frames := wire.NewReplies(conn)
	if err := l.handshake(frames); err != nil {
		return err
	}
	defer ls.peers.parted(p)
	l.books.onProbation = ls.peers.greeted(p) > 0

	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cut := func(why error) func() { return func() { stop(why); wire.Cut(conn) } }
	defer diskio.Watch(peerTimeout, &l.signs.beat, l.stands(), cut(errPeerStalled))()
	defer diskio.Watch(peerGone, &l.signs.words, l.owed, cut(errPeerGone))()
	received := await.Beside(func() {
		stop(l.receive(sending, frames)) // the writer must not wait for receipts that will not come
		conn.SetWriteDeadline(time.Now())
	})
	l.greeted = time.Now()
	ls.carriers.join(l)
	defer ls.carriers.settled(l)
	sent := make(chan error, 1)
	go func() {
		defer ls.carriers.leave(l)
		ls.traffic.work(&l.flow.load, true)
		defer ls.traffic.work(&l.flow.load, false)
		defer ls.traffic.pledge(&l.flow.load, 0)
		sent <- l.send(sending)
	}()
	select {
	case err = <-sent:
	case <-l.stuck: // what hangs ends with its disk; the other disks' blocks need another lane
		err = diskio.Silence(l.hung)
		stop(err)
	}
	if cause := context.Cause(sending); cause != nil && ctx.Err() == nil && err != plan.ErrSettled {
		err = cause // the peer went first, and that is why sending failed
	}
	if !diskio.IsSilent(err) && ctx.Err() == nil {
		l.keepPart(err)
	}
	if !undo() {
		<-silenced // else its deadline would cut off the word that no more comes, which the peer waits for
	}
	l.finish(received, diskio.IsSilent(err) || err == plan.ErrSettled || err == errPeerFull || err == errSurplus || err == errAskAgain || ctx.Err() != nil)
	l.returnInflight(ctx, err)
	return err
}

// awaits reports whether a peer that has been at work since then is still waited for. Once no more time is left than it has worked, it is
// not: others, if there are any, need that long for the same. The peer may be comparing a block as large as its disk, and all blocks that
// were sent behind that one wait.
func (ls *lanes) awaits(ctx context.Context, since time.Time) bool {
	until, now := ls.out.until(ctx), time.Now()
	return until.IsZero() || now.Sub(since) < until.Sub(now)
}

// oversee keeps blocks on a disk that does not answer from holding up the others.
func (ls *lanes) oversee(ctx context.Context) {
	tick := time.NewTicker(diskio.LookAfter)
	defer tick.Stop()
	for {
		changed := ls.source.disks.Changed()
		ls.carriers.look(time.Now())
		ls.keepLittle(time.Now())
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
