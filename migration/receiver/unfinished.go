package receiver

import (
	"context"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// When a stream breaks amid a large block, the receiver keeps what it has of the block for a while. Otherwise a link that is cut for a
// second near the block's end would cost all that was sent, and near a deadline the block. The sender remembers the checksums of what it
// sent. On its next stream it asks how much is here and goes on from there (FrameAgain, FrameHave). The complete block is still compared
// as a whole.

const (
	// keptFor is longer than a sender takes to notice that it is cut off (peerTimeout) and to come back.
	keptFor = 15 * time.Second
	// mostKept bounds the unfinished blocks of all senders; each holds its room on a disk, and nothing else.
	mostKept = 16
	// claimPatience is how long a new stream waits until the old one lets go of its block. The old one's disk may hang.
	claimPatience = 2 * time.Second
)

// comeback is how a new stream of the same sender takes over the block that an older stream cannot finish.
type comeback struct {
	cut    func()                  // cuts the older stream's connection
	leave  func()                  // frees its place for another stream
	block  underWay                // that a new stream may ask for
	claims chan chan<- *unfinished // where a new stream asks for the block
	parted chan struct{}           // closed once the block cannot be had any more
}

// unfinished is a block under way, with the state of its stream.
type unfinished struct {
	landing  landing
	packed   vaultLanding
	seg      *vault.Segment // the segment that it lies in; nil: it has files
	ahead    *allotment
	room     *allotment
	promised func()
	dirs     []string
	member   int
	left     int64
	sum      wire.Summer
	has      int64
	covered  int64
	written  uint32
}

// underWay is the opening of the block that a stream is receiving.
type underWay struct {
	mu   sync.Mutex
	open string // "": none that is worth keeping
}

func (u *underWay) set(open string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = open
}

func (u *underWay) is(open string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open == open
}

// layUp keeps the block that a stream was cut off in until its sender claims it by a new stream, or until keptFor is over.
func (in *inbound) layUp(ctx context.Context) {
	defer close(in.parted)
	if _, nothing := in.landing.(nowhereLanding); !in.cutOff || !in.open.Load() || in.landing == nil || nothing || in.broken || in.has < wire.ResumeLeast {
		return
	}
	if in.r.laidUp.Add(1) > mostKept {
		in.r.laidUp.Add(-1)
		return
	}
	defer in.r.laidUp.Add(-1)
	in.flush()
	in.owed.Wait()
	in.out.close()
	defer time.AfterFunc(time.Second, in.cut).Stop() // the sender may still read its last receipts
	in.leave()
	wait := time.NewTimer(keptFor)
	defer wait.Stop()
	select {
	case claim := <-in.claims:
		claim <- in.handOver()
	case <-wait.C:
	case <-ctx.Done():
	case <-in.lost:
	}
}

func (in *inbound) handOver() *unfinished {
	u := &unfinished{in.landing, in.packed, nil, nil, in.room, in.promised, in.dirs, in.member, in.left, in.sum, in.has, in.covered, in.written}
	if _, packed := in.landing.(*vaultLanding); packed {
		u.seg, u.ahead, in.seg, in.ahead = in.seg, in.ahead, nil, nil
	}
	in.landing = nil
	in.block.set("")
	in.open.Store(false)
	return u
}

// resume goes on with a block that an earlier stream brought part of, and tells the sender how much is here. It reports false if
// nothing is.
func (in *inbound) resume(f wire.Frame) bool {
	is := in.takeOver(string(f.Payload))
	if is {
		in.block.set(string(f.Payload))
		if err := in.r.turnAway(in.last, in.opening.Bytes()); err != nil {
			in.drop()
			in.refuse(err)
		}
	}
	in.out.has(f.Transfer, in.has)
	return is
}

// takeOver makes the block under way the one that an earlier stream left unfinished. It reports false if none did.
func (in *inbound) takeOver(open string) bool {
	in.has = 0
	u := in.r.claim(in, open)
	if u == nil {
		return false
	}
	if u.seg != nil {
		in.part()
		in.seg, in.ahead = u.seg, u.ahead
	}
	in.landing, in.packed, in.room, in.promised, in.dirs = u.landing, u.packed, u.room, u.promised, u.dirs
	in.member, in.left, in.sum, in.has, in.covered, in.written = u.member, u.left, u.sum, u.has, u.covered, u.written
	switch l := in.landing.(type) {
	case *vaultLanding:
		in.landing = &in.packed
	case *placeLanding:
		l.work = &in.work
	}
	return true
}

// asWritten returns a frame under the transfer number that the block's earlier frames have in the segment: they may have come by
// another stream.
func (in *inbound) asWritten(f wire.Frame) wire.Frame {
	if in.written != f.Transfer {
		wire.PutHeader(f.Raw[:wire.HeaderBytes], f.Type, in.written, len(f.Payload), f.Sum)
	}
	return f
}
