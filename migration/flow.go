package migration

import (
	"context"
	"math"
	"net"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/await"
)

// flow is how a lane's connection carries, and what follows for blocks: how large one may be that is begun, and whether one that was
// begun goes on, holds back or is broken off. It goes by the lane's own pace, by what all lanes carry and have begun (traffic), and by
// the cap and the end of sending (outflow). It knows sizes and times; it does not know blocks or peers, takes nothing from the plan
// and writes nothing. It belongs to the goroutine that sends, but for its load, which is traffic's.
type flow struct {
	conn    net.Conn
	out     *outflow
	traffic *traffic
	load    load

	pace  pace
	until time.Time // the end of sending, as last known

	size     int64     // of the block that is sent
	streamed bool      // the rate was measured amid a block that fills the buffer: not by how fast small ones are found on a disk
	tries    bool      // a block is taken though the rate says that it would be too late
	rated    time.Time // when the rate was measured

	slack bool  // the lanes leave over much that they could carry together: this one waits for its own connection, not for the link
	queue int64 // bytes that the kernel had not got rid of, when last asked

	narrow bool // the kernel is to keep little, for the connection carries little
}

const (
	// tryBefore is how much time must be left for a block that is begun though it seems too large: it takes a second to know better.
	tryBefore = 3 * paceMemory
	// stillSlow is how long the rate counts that was measured while a link stood still for a second or more: it may be well again.
	stillSlow = 5 * paceMemory
)

// begin says that a block is sent from now on.
func (f *flow) begin(now time.Time, size int64) {
	f.pace.start(now)
	f.size = size
}

// goOn says that the peer has so much of the block already.
func (f *flow) goOn(there int64) { f.traffic.pledge(&f.load, f.size-there) }

// rest says that the lane has nothing to send until it goes on.
func (f *flow) rest() (goOn func()) {
	f.pace.rest()
	f.traffic.work(&f.load, false)
	return func() { f.traffic.work(&f.load, true) }
}

// carried notes that the connection has taken so many bytes, and reports whether the pace was measured anew.
func (f *flow) carried(ctx context.Context, now time.Time, n int) (measured bool) {
	before := f.pace.rate
	gone := f.gone(n)
	f.pace.carried(now, gone)
	slack := f.traffic.carried(&f.load, now, gone)
	if f.pace.rate == before {
		return false
	}
	f.streamed, f.tries, f.rated = f.size > laneBuffer, false, now
	f.slack, f.until = slack, f.out.until(ctx)
	f.bufferAsCarried()
	return true
}

// gone is how many bytes have left since it was last asked, with n more in the kernel.
func (f *flow) gone(n int) int64 {
	before := f.queue
	f.queue = queued(f.conn)
	return max(int64(n)+before-f.queue, 0)
}

// inKernel is how many bytes the kernel has that have not left, as it says now.
func (f *flow) inKernel() int64 {
	f.traffic.carried(&f.load, time.Now(), f.gone(0))
	return f.queue
}

// bufferAsCarried makes the connection keep little while it carries little.
func (f *flow) bufferAsCarried() {
	was := f.narrow
	f.narrow = f.pace.rate < narrowLane
	if f.narrow {
		bufferLess(f.conn, f.pace.rate)
	} else if was {
		bufferFreely(f.conn) // near the end of the drain lanes.keepLittle sets it again
	}
}

// forget drops what was measured, if that were small blocks or a link that stood still, nothing is on its way on any lane, and there is
// time to try a block. It reports whether it did. How fast small blocks are found on a disk says little of how fast a large one is carried.
func (f *flow) forget() bool {
	doubtful := !f.streamed || f.pace.stood && time.Since(f.rated) >= stillSlow
	if !doubtful || f.tries || time.Until(f.until) <= tryBefore || !f.traffic.forget() {
		return false
	}
	f.pace, f.tries = pace{}, true
	return true
}

// hold leaves the link to others for a moment, and returns the time after it.
func (f *flow) hold(ctx context.Context) (now time.Time) {
	f.pace = pace{} // what it had beside others is not what it will have
	f.traffic.hold(1)
	defer f.traffic.hold(-1)
	await.Sleep(ctx, paceStep/4)
	now, f.until = time.Now(), f.out.until(ctx)
	f.slack = f.traffic.carried(&f.load, now, f.gone(0))
	return now
}

// stride is how much is written at once without a cap (a capStep at least): on a slow link, what it takes in a moment, so
// that what lanes carry is known as it goes.
func (f *flow) stride(now time.Time) int {
	return int(min(f.pace.soFar(now)*paceStep.Seconds()/4, laneBuffer))
}

// affordable is how large a block may be that is begun now, at the lane's own pace, behind the bytes ahead of it that are on their way.
// Before that is measured, the rate counts that is typical of others.
func (f *flow) affordable(ctx context.Context, ahead int64, typical func() float64) int64 {
	f.until = f.out.until(ctx)
	if f.until.IsZero() {
		return math.MaxInt64
	}
	assumed := 0.
	if f.pace.rate == 0 && !f.tries {
		assumed = typical()
	}
	return f.pace.affordable(time.Now(), f.until, ahead, assumed)
}

// share is how large a block may be that is begun now, beside what all lanes have begun: at the lane's own pace, and if it had all that
// the others leave. It says to the others that the lane has begun on so much (begun). The caller has the traffic's taking.
func (f *flow) share(begun, affordable int64) (most, alone int64) {
	f.traffic.pledge(&f.load, begun)
	through, known := f.through(time.Now())
	left := int64(math.MaxInt64 / 2)
	if known {
		left = int64(min(max(through*(1-paceMargin)-float64(f.traffic.begunOn()), -1), math.MaxInt64/2))
	}
	most, alone = min(left, affordable), left
	if !known || f.slack {
		alone = most
	}
	return most, alone
}

// through is what all lanes can carry until the end: no less than this one does by itself, no more than the cap.
func (f *flow) through(now time.Time) (bytes float64, known bool) {
	most := f.traffic.speed()
	if most > 0 {
		most = max(most, f.pace.rate)
	}
	if limit := f.out.limit.rate(); limit != rate.Inf && (most == 0 || float64(limit) < most) {
		most = float64(limit)
	}
	return f.until.Sub(now).Seconds() * most, most > 0 && !f.until.IsZero()
}

// prospect is what is to become of a block that was begun.
type prospect int

const (
	goAhead  prospect = iota
	holdBack          // others may have the link, until they are done or it turns out to carry more
	breakOff          // it cannot be at the peer in time
)

// prospect says what is to become of a block of which so much is left.
func (f *flow) prospect(now time.Time, whole, left int64) prospect {
	if left == 0 {
		return goAhead
	}
	through, known := f.through(now)
	switch {
	case f.slack && f.pace.hopeless(now, f.until, left):
		return breakOff
	case f.slack || !known:
		return goAhead
	}
	return f.traffic.prospect(&f.load, through, whole, left)
}
