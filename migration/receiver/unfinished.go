package receiver

import (
	"context"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What has come of a large block when its stream breaks is kept for a while: a link that is cut for a second near the end of it would
// else cost all that was sent, and near a deadline the block. Its sender, which remembers the checksums of what it sent, asks on its next
// stream how much of it is here, and goes on from there (FrameAgain, FrameHave). What comes whole is still compared as a whole.

const (
	// keptFor is longer than a sender takes to notice that it is cut off (peerTimeout) and to come back.
	keptFor = 15 * time.Second
	// mostKept bounds what is kept of all senders; each has its room on a disk, and nothing else.
	mostKept = 16
	// claimPatience is how long a stream that a sender has left has to let go of its block. Its disk may hang.
	claimPatience = 2 * time.Second
)

// comeback is what a stream and others have to do with each other about a block that it does not bring to its end.
type comeback struct {
	cut    func()                  // ends the stream
	leave  func()                  // another may have its place
	block  underWay                // that a new stream may ask for
	claims chan chan<- *unfinished // what a new stream wants it by
	parted chan struct{}           // closed when it is not to be had
}

// unfinished is a block under way, with all that is known of it.
type unfinished struct {
	landing  landing
	packed   vaultLanding
	seg      *vault.Segment // that it lies in; nil: it has files
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

// underWay is the opening of the block that a stream brings.
type underWay struct {
	mu   sync.Mutex
	open string // "": none that is worth to be asked for
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

// layUp keeps the block that a stream was cut off in until its sender claims it on another, or for as long as that may take.
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
	defer time.AfterFunc(time.Second, in.cut).Stop() // it may take its last receipts yet
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

// claim has the stream that a node has left, or was cut off from, hand over the block that it brought; nil: none did.
func (r *Receiver) claim(by *inbound, open string) *unfinished {
	r.mu.Lock()
	var of *inbound
	for in := range r.live {
		if in != by && in.node == by.node && in.block.is(open) {
			of = in
		}
	}
	r.mu.Unlock()
	if of == nil {
		return nil
	}
	of.cut()
	late := time.NewTimer(claimPatience)
	defer late.Stop()
	has := make(chan *unfinished, 1)
	select {
	case of.claims <- has:
		return <-has
	case <-of.parted: // there was too little of it to be kept
		return nil
	case <-late.C:
		return nil
	}
}

// resume goes on with a block that an earlier stream brought some of, and says how much. It reports false where there is nothing of it.
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

// takeOver has the block under way be what an earlier stream left of it, if one did.
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

// asWritten is a frame as it has to stand behind those of its block that came by another stream, under the number that they have.
func (in *inbound) asWritten(f wire.Frame) wire.Frame {
	if in.written != f.Transfer {
		wire.PutHeader(f.Raw[:wire.HeaderBytes], f.Type, in.written, len(f.Payload), f.Sum)
	}
	return f
}
