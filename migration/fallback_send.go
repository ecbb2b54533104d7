package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// fallback is the storage that takes what no peer does, and what a drain knows of it.
type fallback struct {
	*lastresort.Storage
	cargo
	carriers *carriers
	peers    *peers
	out      *outflow
	crowd    *crowd

	taking sync.Mutex // held while an upload is handed a block beside what the others have begun

	mu      sync.Mutex
	state   peerState
	late    bool          // something that was left could not be there in time
	latency time.Duration // of a small upload
	rate    float64       // bytes per second of a large one; 0: not known
	begun   int64         // bytes of the uploads' blocks that have not left
	link    uplink
}

func newFallback(s *lastresort.Storage, c cargo, carriers *carriers, peers *peers, out *outflow) *fallback {
	return &fallback{Storage: s, cargo: c, carriers: carriers, peers: peers, out: out, crowd: newCrowd(s.Streams), state: peerState{Peer: Peer{Node: s.Peer()}}}
}

const (
	// answerSoon is how long the fallback may owe the answer to a first question before the drain warns of it.
	answerSoon = 2 * time.Second
	// never is longer than any drain.
	never = 365 * 24 * time.Hour
	// largeUpload is the size from which on an upload tells a rate; a smaller one tells a latency.
	largeUpload = 1 << 20
)

// errTooLate says that what is left cannot be in the fallback in time.
var errTooLate = errors.New("what is left cannot be uploaded before the deadline")

// run uploads blocks that no peer takes, one after the other, until all blocks are settled (true) or ctx ends. For small blocks it
// calls help, which begins another upload. One that helps ends when there are no small blocks, or fewer should be on their way.
func (f *fallback) run(ctx context.Context, helps bool, help func()) (settled bool) {
	crowd := f.crowd
	if helps {
		defer crowd.leave()
	}
	for ctx.Err() == nil && !(helps && crowd.full()) {
		pause := lookAtPeers
		if larger, any := f.peers.left(); any {
			one, err := f.take(ctx, larger)
			switch {
			case len(one) > 0 && one[0].Bytes() <= smallUpload:
				if crowd.join() {
					help()
				}
				pause = f.upload(ctx, one[0])
			case len(one) > 0 && helps:
				f.begin(-one[0].Bytes())
				f.plan.PutBack(one)
				return false
			case len(one) > 0:
				pause = f.upload(ctx, one[0])
			case err == plan.ErrSettled:
				return true
			case err == plan.ErrNoTime:
				f.tooLate()
			}
		}
		if pause > 0 && helps {
			return false
		}
		if pause > 0 {
			await.Sleep(ctx, pause)
		}
	}
	return false
}

// take has the plan hand out a block that would be there in time.
func (f *fallback) take(ctx context.Context, larger plan.MoreThan) (one []plan.Entry, err error) {
	f.taking.Lock()
	defer f.taking.Unlock()
	bytes, atBest := f.affordable(ctx)
	if bytes < 0 {
		return nil, plan.ErrNoTime
	}
	room := plan.RoomOf(math.MaxInt64)
	room.Larger = larger
	f.carriers.handOut(func(crowded map[string]bool) (some bool) {
		one, _, err = f.plan.Take(nil, 1, 0, f.state.Node, room, bytes, crowded)
		if err == plan.ErrNoTime && atBest > bytes {
			one, _, err = f.plan.Take(nil, 1, 0, f.state.Node, room, atBest, crowded)
		}
		return len(one) > 0
	})
	for _, e := range one {
		f.begin(e.Bytes())
	}
	return one, err
}

// begin counts bytes that an upload has to send; below zero: that it will not send.
func (f *fallback) begin(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun += bytes
}

// affordable returns how many bytes one upload can carry in the time that is left, at the rate of earlier ones; below zero: there is no
// time. It is what the blocks that other uploads have begun leave of the cap, and of what all carry together: without that, all would share
// it, and none would be done in time. atBest leaves the rate of earlier uploads out: one that has all that the others leave may carry more
// than those that shared it, which is worth a try where nothing else is left.
func (f *fallback) affordable(ctx context.Context) (bytes, atBest int64) {
	until := f.out.until(ctx)
	if until.IsZero() {
		return math.MaxInt64, math.MaxInt64
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	left := time.Until(until) - f.latency
	if left <= 0 {
		return -1, -1
	}
	most := left.Seconds()*(1-paceMargin)*float64(f.out.limit.rate()) - float64(f.begun)
	if rate := f.link.rate(); rate > 0 {
		most = min(most, left.Seconds()*(1-paceMargin)*rate-f.link.left())
		atBest = wholeBytes(most)
	}
	if f.rate > 0 { // what is not known is not slow
		most = min(most, left.Seconds()*f.rate)
	}
	return wholeBytes(most), atBest
}

func wholeBytes(n float64) int64 {
	if n < math.MaxInt64/2 {
		return int64(n)
	}
	return math.MaxInt64
}

// tooLate notes that the fallback is well and the time too short.
func (f *fallback) tooLate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.trouble == "" {
		f.state.trouble = errTooLate.Error()
	}
	if !f.late {
		f.late = true
		f.log.Warn("the fallback cannot take all that is left before the deadline", "peer", f.state.Node)
	}
}

// learn takes note of how long an upload took.
func (f *fallback) learn(bytes int64, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes < largeUpload {
		f.latency = (f.latency + took) / 2
		return
	}
	rate := float64(bytes) / max(took.Seconds(), 1e-6)
	if f.rate != 0 {
		rate = (f.rate + rate) / 2
	}
	f.rate = rate
}

// await warns of a fallback that does not answer, well before it is given up. A fallback that is known to be slow gets
// the time that it takes, and an upload of content is timed only once it is known how long others took.
func (f *fallback) await(content int64) (answered func()) {
	f.mu.Lock()
	soon, rate := max(answerSoon, 2*f.latency), f.rate
	if content > 0 && f.link.rate() > 0 { // they share what it takes
		rate = min(rate, 2*float64(content)/f.link.left()*f.link.rate())
	}
	f.mu.Unlock()
	switch {
	case content > 0 && rate > 0:
		soon += time.Duration(2 * float64(content) / rate * float64(time.Second))
	case content > 0:
		return func() {}
	}
	tell := time.AfterFunc(soon, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s := &f.state; s.trouble == "" {
			s.trouble = fmt.Sprintf("no answer for %v: it may hang", soon.Round(100*time.Millisecond))
			f.log.Warn("the fallback does not answer", "peer", s.Node, "took", soon)
		}
	})
	return func() { tell.Stop() }
}

// upload carries one block to the fallback and books what became of it. It returns how long to leave the fallback alone.
func (f *fallback) upload(ctx context.Context, e plan.Entry) (pause time.Duration) {
	if why := f.endings.isOver(e.Block); why != "" {
		f.begin(-e.Bytes())
		f.account.carryOut(ruling{Entry: e, outcome: manifest.Skipped, why: why})
		return 0
	}
	u := &upload{to: f, e: e, holds: true, stuck: make(chan struct{}), bytes: e.Bytes(), unsent: e.Bytes()}
	u.begins()
	defer u.ends()
	f.carriers.join(u)
	defer f.carriers.settled(u)
	working, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	done := make(chan error, 1)
	var verdict *ruling
	go func() {
		defer f.carriers.leave(u)
		err := u.save(working)
		if local, is := errors.AsType[*localError](err); is {
			u.work.Begin(&f.source.where(e.Block)[0])
			r := f.account.judge(e, local.err)
			u.work.End()
			verdict = &r
		}
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-u.stuck: // what hangs ends with its disk
		u.returnInflight(ctx, diskio.Silence(u.hung))
		return 0
	}
	switch {
	case !u.forget(): // it was given back: the drain is over
		return 0
	case err == nil:
		if u.sent > 0 {
			f.learn(u.sent, time.Since(began))
		}
		if e.Bytes() <= smallUpload {
			f.crowd.arrives(time.Now())
		}
		f.moved(e)
		return 0
	case verdict != nil:
		f.account.carryOut(*verdict)
		return 0
	case errors.Is(err, catalog.ErrConflict):
		f.account.carryOut(ruling{Entry: e, outcome: manifest.Lost, why: describe(e.ID, f.state.Node, err).Error()})
		return 0
	case ctx.Err() != nil, errors.Is(err, errPeersTake):
		f.plan.GiveBack(e, 0, f.cutOff(time.Since(began)))
		return 0
	}
	past, why := e.Met(), describe(e.ID, f.state.Node, err).Error()
	if errors.Is(err, fs.ErrInvalid) { // that is no trouble of the fallback's: the block is for peers alone
		past.Shun, past.Shunned = f.state.Node, time.Now().Add(never)
		f.plan.GiveBack(e.After(past), 0, why)
		return 0
	}
	f.crowd.refused(time.Now())
	past.Attempts++
	f.plan.GiveBack(e.After(past), backOff(past.Attempts), why)
	if rest := f.rests(); rest > 0 { // another upload has failed meanwhile, most likely for the same reason
		return rest
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.note(err, f.log)
}

// moved books a block that the fallback has.
func (f *fallback) moved(e plan.Entry) {
	n := f.account.moved(f.state.Node, []plan.Entry{e})
	f.mu.Lock()
	f.state.took(n)
	if !f.state.rest.After(time.Now()) { // a fallback that is full still takes what was under way, and what is small
		f.state.recover(f.log)
	}
	f.mu.Unlock()
	f.plan.Settle(1)
}

// words says what most likely kept blocks from it; "": nothing is known of that.
func (f *fallback) words() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	trouble := f.state.trouble
	if trouble == "" && f.late {
		trouble = errTooLate.Error()
	}
	if trouble == "" {
		return ""
	}
	return f.state.Node + ": " + trouble
}

// progress is the fallback's part; false: it has had none.
func (f *fallback) progress() (p PeerProgress, some bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.progress(), f.state.moved.Blocks > 0 || f.state.trouble != ""
}

// rests is how long the fallback is left alone since it failed.
func (f *fallback) rests() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.failures == 0 {
		return 0
	}
	return time.Until(f.state.rest)
}

// cutOff says why a block was still on its way after so long, as far as that is known: what hangs does not say.
func (f *fallback) cutOff(after time.Duration) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	words := fmt.Sprintf("on its way to %s for %v", f.state.Node, after.Round(100*time.Millisecond))
	if trouble := f.state.trouble; trouble != "" {
		words += ": " + trouble
	}
	return words
}
