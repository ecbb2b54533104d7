package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

const (
	// vigilEvery is how often a node that is empty, and still there, asks whether the peers that took its blocks are. A
	// reclaim gives two minutes, of which one may be left when a peer is known to have died.
	vigilEvery = 10 * time.Second
	// vigilTimeout bounds that question before a pass: the pass begins only after the answer.
	vigilTimeout = time.Second
	// settled is how long a node waits, amid a drain, before it asks who has blocks that are doubted: takers report them with
	// their beats, and at one beat a second the coordinator is sure after five (toldAll in package coordinator). At a slower
	// pace it answers that it is not, and is asked again.
	settled = 6 * time.Second
	// askHeldEvery is how often a node asks, for every block that it carried, whether some node still has it. Under advice
	// that may go on for weeks. A thousand nodes with 200,000 blocks each cost the coordinator a tenth of a processor
	// (BenchmarkCheckHeld in package coordinator).
	askHeldEvery = 15 * time.Minute
	// leftTimeout bounds the look of a drained node for blocks that it has not carried: it is enough for some five million
	// files. A disk may hang under it.
	leftTimeout = time.Minute
	// doubtGap is the least time between two passes that ask about every block because the coordinator said that some are
	// held no more. A node that leaves may ask each vigilEvery.
	doubtGap = time.Minute
	// mostOver bounds the ended apps that are watched for their end being taken back.
	mostOver = 1024
)

// absentFor is the age given for blocks that absent peers took; it stands for any age. A peer that is gone has been silent
// for a lease, and reports no more of what it took. If another machine has its name, blocks that the new machine took in the
// last seconds, and has not reported yet, are carried twice at worst.
const absentFor = 24 * time.Hour

// vigil watches the peers that took this node's blocks, for as long as this node has the blocks itself: when a peer is gone,
// its blocks are carried again unless another node has them. Each pass of copying ahead and of the drain asks by it, and a
// lookout asks during and after them.
type vigil struct {
	course *course

	// lapsed and overs are the fleet's Lapsed and AppsChanged as the lookout that runs has them. They stay from one to the next,
	// so that none misses what is said in between. Nil: there was none yet.
	lapsed, overs <-chan struct{}

	mu       sync.Mutex // guards what follows
	incident string     // the one that is watched
	kept     bool       // a pass has begun: the peers that take blocks from now on are watched from the start
	asked    time.Time  // when every block was last asked about
	doubted  bool       // the coordinator says that some blocks are held no more
	doubtAt  time.Time  // when every block was last asked about for that reason
	over     []string   // apps that were said to be over: their blocks were left behind
	since    uint64     // the coordinator's event before which no peer took anything, but for those in parted
	log      uint64     // the log that has that event
	was      fates      // the fates of takers and heirs when their blocks were last asked about
	parted   []string   // takers that may have been gone at some time, and have handed on what they had
	heirs    []string   // the holders that the answers named
	stale    []string   // peers that were away when told, after the drain, which copies are out of date
}

// lookout keeps the vigil while a drain runs and once it is over. One goroutine uses it.
type lookout struct {
	*vigil
	ended  time.Time // the end of the drain whose takers these are
	looked time.Time // when the takers were last asked about
	takers []string
	young  young // a doubt about blocks that moved too short a time ago
	ends   bool  // apps have ended, or an end was taken back, since the last look
	untold bool  // there was no time to tell all peers which copies are out of date
}

// fates are what became of nodes: gone lists those that are gone, renewed maps the names that other machines have now to the
// ids of these.
type fates struct {
	gone    []string
	renewed map[string]string
}

// left reports whether the machine that had a node's name is gone: no machine or another one has it now.
func (f fates) left(node string) bool {
	_, another := f.renewed[node]
	return another || slices.Contains(f.gone, node)
}

// knew reports whether a node's fate is the same in f as in is.
func (f fates) knew(is fates, node string) bool {
	return slices.Contains(f.gone, node) == slices.Contains(is.gone, node) && f.renewed[node] == is.renewed[node]
}

// question is what a pass asks the coordinator about the blocks that earlier passes carried.
type question struct {
	began  time.Time
	absent []string // ask about the blocks that these peers took; nil: about all blocks, unless none is true
	none   bool
	adopts bool  // the account is that of earlier drains
	doubt  bool  // it is asked because the coordinator said that some are held no more
	is     fates // of takers and heirs

	mu     sync.Mutex // guards what follows: a pass that was left behind may still ask
	unsure bool       // an answer was incomplete
	has    []string   // the holders that the answers named
}

// before returns what a pass that begins now is to ask.
func (v *vigil) before(ctx context.Context, incident, dir string) *question {
	v.turn(incident)
	q := &question{began: time.Now()}
	takers := v.course.takers(dir)
	if len(takers) == 0 {
		q.adopts = v.course.adopt(incident, dir)
		takers = v.course.takers(dir)
	}
	v.keep(takers)
	if len(takers) == 0 {
		q.none = true
		v.course.aside.Go(func() { v.begin(ctx, q.began, dir) }) // the first pass has no second to wait
		return q
	}
	asking, cancel := context.WithTimeout(ctx, vigilTimeout)
	defer cancel()
	var news []string
	q.is, news = v.losses(asking, takers)
	var all bool
	if all, q.doubt = v.asksAll(doubtGap); !all {
		q.absent, q.none = news, len(news) == 0
	}
	context.AfterFunc(ctx, func() { // a pass that is left behind may not have asked
		if isLeft(ctx) {
			q.answered(heartbeat.Held{}, errLeft)
			v.after(q)
		}
	})
	return q
}

// doubt notes that the coordinator said that some carried blocks are held no more.
func (v *vigil) doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doubted = true
}

// asksAll reports whether it is time to ask about every block, and whether because of doubt. It clears the doubt, so the
// caller must ask.
func (v *vigil) asksAll(gap time.Duration) (all, doubt bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.doubted && time.Since(v.doubtAt) >= gap {
		v.doubted, v.doubtAt = false, time.Now()
		return true, true
	}
	return time.Since(v.asked) >= askHeldEvery, false
}

// keep notes that a pass begins. Peers that took blocks before the first pass were not watched: another machine may have the
// name of one by now.
func (v *vigil) keep(takers []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.kept {
		v.kept, v.parted = true, union(v.parted, takers)
	}
}

// put has a drain ask the question.
func (v *vigil) put(q *question, cfg *migration.DrainConfig) {
	cfg.Adopted = q.adopts
	if q.none {
		return
	}
	cfg.Absent = q.absent
	cfg.Lapsed = func(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
		if q.absent != nil {
			age = max(age, absentFor)
		}
		h, err := v.course.fleet.checkHeld(ctx, age, blocks)
		q.answered(h, err)
		return h.Missing, h.Why, err
	}
}

func (q *question) answered(h heartbeat.Held, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsure = q.unsure || h.Unsure > 0 || err != nil
	q.has = union(q.has, h.Holders)
}

func (q *question) sure() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.unsure
}

// after notes that the pass is over. Doubt whose answers were incomplete stays, and is asked about again.
func (v *vigil) after(q *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.none {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if q.unsure {
		v.doubted = v.doubted || q.doubt
		return
	}
	if v.was = q.is; q.absent == nil {
		v.asked = q.began
	}
	v.heirs = slices.DeleteFunc(v.heirs, q.is.left)
	v.heirs = union(v.heirs, q.has)
}

// begin counts every block as asked about at the given time, when none was carried yet. It does so only if the coordinator
// told its newest event before any peer had taken a block: losses then knows that all takers come after that event.
func (v *vigil) begin(ctx context.Context, at time.Time, dir string) {
	_, _ = v.losses(ctx, nil)
	nobody := len(v.course.takers(dir)) == 0
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.since > 0 && nobody {
		v.asked = at
	}
}

// due is when to ask next about what the drain of p has carried.
func (v *lookout) due(p page) time.Time {
	if v.turn(p.Incident.ID); p.Work.Drained != nil && !p.Work.Drained.Finished.Equal(v.ended) {
		return time.Now()
	}
	if at := v.young.At.Add(settled); v.young.drain != nil && v.looked.Before(at) {
		return at
	}
	return v.looked.Add(vigilEvery)
}

// amid has the running drain of p carry again the blocks of takers that are gone, and those that the coordinator says are
// held no more.
func (v *lookout) amid(ctx context.Context, p page) {
	v.looked = time.Now()
	var takers []string
	d := v.course.drains.of(v.course.refuge.accountDir(p.Incident.ID))
	if d != nil {
		takers = d.Takers()
	}
	is, news := v.losses(ctx, takers) // the first call notes the event that all takers come after
	if v.young.drain != d {
		v.putOff()
	}
	if d == nil || len(takers) == 0 {
		return
	}
	now, err := d.Mark(ctx)
	if err != nil {
		v.course.log.Warn("cannot learn whether peers still hold what they took", "peers", takers, "err", err)
		return
	}
	if len(news) > 0 {
		v.carry(ctx, d, &question{absent: news, is: is}, news, now)
	}
	if v.young.drain == nil {
		if _, doubt := v.asksAll(vigilEvery); !doubt {
			return
		}
		v.young = young{d, now}
	}
	if time.Since(v.young.At) < settled {
		return
	}
	q := &question{began: v.young.At, is: is}
	switch heard := v.carry(ctx, d, q, takers, v.young.Mark); {
	case !heard:
		v.putOff()
	case q.sure(): // else the next look asks again, when they are older
		v.young = young{}
	}
}

// young is a doubt about what a drain had moved until its Mark. The coordinator may have yet to hear of some of it.
type young struct {
	drain *migration.Drain // nil: there is none
	migration.Mark
}

// putOff leaves a doubt that waits to whoever looks next: its drain is over.
func (v *lookout) putOff() {
	if v.young.drain != nil {
		v.young = young{}
		v.doubt()
	}
}

// carry has a running drain carry again those blocks that peers took before that moment and nobody has any more. It reports
// false when that is not known, or comes too late for the drain.
func (v *lookout) carry(ctx context.Context, d *migration.Drain, q *question, took []string, before migration.Mark) bool {
	var cfg migration.DrainConfig
	v.put(q, &cfg)
	heard, err := d.CarryLapsed(ctx, took, before, cfg.Lapsed)
	if err != nil {
		v.course.log.Warn("cannot learn whether peers still hold what they took", "peers", took, "err", err)
	}
	if heard {
		v.after(q)
	}
	return heard
}

// finds returns the question for another pass of the drain of p. Nil: no pass is needed, since each block that it carried is
// held by some node or is no longer here, or there is no time to carry any again.
func (v *lookout) finds(ctx context.Context, p page) *question {
	c, dir := v.course, v.course.refuge.accountDir(p.Incident.ID)
	v.looked = time.Now()
	v.turn(p.Incident.ID)
	v.putOff()
	another := !p.Work.Drained.Finished.Equal(v.ended)
	if another {
		takers, err := diskio.UnlessHung(ctx, func() ([]string, error) { return c.takers(dir), nil })
		if err != nil {
			return nil // the disk of the account hangs, and ctx has ended
		}
		v.ended, v.takers = p.Work.Drained.Finished, takers
		v.remember(ctx, dir)
	}
	q := &question{began: v.looked}
	var news []string
	q.is, news = v.losses(ctx, v.takers)
	v.forget(ctx, another, q.is, func(ctx context.Context) ([]string, error) {
		return migration.ForgetRest(ctx, c.drainConfig(p.Incident.ID, dir, 0))
	})
	if time.Until(c.limits.againUntil(p.Incident, time.Now())) < leastAgain {
		return nil
	}
	if v.ends && v.resumed(ctx) || another && c.leftSome(ctx, p) {
		return &question{none: true}
	}
	var all bool
	if all, q.doubt = v.asksAll(vigilEvery); !all {
		if q.absent = news; len(news) == 0 {
			return nil
		}
	}
	cfg := c.drainConfig(p.Incident.ID, dir, 0)
	v.put(q, &cfg)
	some, err := migration.AnyLapsed(ctx, cfg, max(0, time.Since(v.ended)))
	if err != nil {
		c.log.Debug("it is not known whether what was carried is still held, or is here", "err", err)
		q.answered(heartbeat.Held{}, err)
	}
	if !some {
		v.after(q)
		return nil
	}
	return q
}

// leftSome reports whether an earlier process drained the node and did not carry all that is here now: a disk may be mounted
// that was not then.
func (c *course) leftSome(ctx context.Context, p page) bool {
	if c.drains.of(c.refuge.accountDir(p.Incident.ID)) != nil {
		return false
	}
	some, _ := c.anyLeft(ctx, p, func(*inventory.Block, bool) bool { return true })
	return some
}

// resumed reports whether the end of an app was taken back whose blocks a drain has left behind.
func (v *lookout) resumed(ctx context.Context) bool {
	v.mu.Lock()
	were := v.over
	v.mu.Unlock()
	are, err := v.course.appsOver(ctx, were)
	if v.ends = err != nil; v.ends {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = slices.DeleteFunc(slices.Clone(v.over), func(app string) bool { return slices.Contains(were, app) && are[app] == "" })
	return len(are) < len(were)
}

// remember notes the apps whose blocks an earlier process left behind, so that resumed asks whether they are still over.
func (v *lookout) remember(ctx context.Context, dir string) {
	if v.course.drains.of(dir) != nil {
		return // this process drained the node
	}
	apps, err := diskio.UnlessHung(ctx, func() ([]string, error) { return migration.AppsLeft(dir) })
	if err != nil && ctx.Err() == nil {
		v.course.log.Warn("cannot read which apps were over: what is here of them stays, even if an end is taken back", "err", err)
	}
	if len(apps) > 0 {
		v.leave(apps)
		v.ends = true
	}
}

// leave notes apps that are over, whose blocks a drain leaves behind.
func (v *vigil) leave(over []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.over) < mostOver {
		v.over = union(v.over, over)
	}
}

// forget tells peers that were away and are back which of their copies are out of date; the first call tells all, to find
// out which are away. Where there was no time for all, the next call goes on.
func (v *lookout) forget(ctx context.Context, first bool, is fates, tell func(ctx context.Context) (away []string, err error)) {
	v.mu.Lock()
	back := slices.ContainsFunc(v.stale, func(node string) bool { return !slices.Contains(is.gone, node) })
	v.mu.Unlock()
	if !first && !back && !v.untold {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	away, err := tell(ctx)
	again := v.untold
	if v.untold = err != nil; v.untold {
		if !again {
			v.course.log.Warn("not all peers could be told yet which copies are out of date", "err", err)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stale = away
}

// losses asks what became of the takers and their heirs. news are the takers whose blocks must be asked about therefore:
// those whose machines are gone since the last question, and if an heir is gone, all takers that may have handed blocks on
// to it.
func (v *vigil) losses(ctx context.Context, takers []string) (is fates, news []string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v.mu.Lock()
	since, peers := v.since, union(union(takers, v.heirs), v.stale)
	v.mu.Unlock()
	said, err := v.course.fleet.CheckPeers(ctx, since, peers)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		return v.was, nil
	}
	if another := v.since > 0 && (said.Index < v.since || said.Log != v.log); another || v.since == 0 {
		v.since, v.log = said.Index, said.Log
		v.parted, v.doubted = union(v.parted, takers), v.doubted || another // what happened before that event is not known
	}
	is = fates{said.Gone, said.Renewed}
	was := fates{renewed: v.was.renewed}
	for _, node := range v.was.gone {
		if slices.Contains(is.gone, node) { // else it is back
			was.gone = append(was.gone, node)
		}
	}
	v.was = was
	bereft := slices.ContainsFunc(v.heirs, func(node string) bool { return is.left(node) && !v.was.knew(is, node) })
	for _, node := range takers {
		if is.left(node) {
			v.parted = union(v.parted, []string{node})
		}
		if is.left(node) && !v.was.knew(is, node) || bereft && slices.Contains(v.parted, node) {
			news = append(news, node)
		}
	}
	return is, news
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// turn starts the vigil anew when the incident is another one.
func (v *vigil) turn(incident string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.incident != incident {
		v.incident, v.kept, v.asked, v.since, v.was, v.parted, v.heirs, v.stale, v.over = incident, false, time.Time{}, 0, fates{}, nil, nil, nil, nil
	}
}

func (c *course) takers(dir string) []string {
	takers, err := migration.Takers(dir)
	if err != nil {
		c.log.Warn("cannot read who took what was carried", "err", err)
	}
	return takers
}
