package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

const (
	// vigilEvery is how often a node that is empty, and still there, asks whether those who took its blocks are: a reclaim gives two
	// minutes, and may have one left when somebody is known to have died.
	vigilEvery = 10 * time.Second
	// vigilTimeout bounds that question before a pass, which does not begin while it waits.
	vigilTimeout = time.Second
	// askHeldEvery is how often a node asks who has each block that it carried: under advice that may be for weeks. A thousand nodes with
	// 200,000 blocks each cost the coordinator a tenth of a processor (BenchmarkCheckHeld in package coordinator).
	askHeldEvery = 15 * time.Minute
	// leftTimeout bounds the look of a drained node for what is here now: some five million files. A disk may hang under it.
	leftTimeout = time.Minute
	// doubtGap is how far apart it asks of each at least for being told that somebody has some no more; a node that leaves does so each
	// vigilEvery.
	doubtGap = time.Minute
	// mostOver bounds the apps of which it is noticed that their end is taken back.
	mostOver = 1024
)

// absentFor stands for any time: who is gone has been silent for a lease, and will tell nothing more of what it took. Where another machine
// is there under its name, what that took in the last seconds, and has yet to tell, is carried twice at worst.
const absentFor = 24 * time.Hour

// vigil is the eye that a node keeps on those who took its blocks, for as long as it has them itself: what one has who is gone is
// carried again, if nobody else has it. Pass after pass of copying ahead and of the drain asks by it, and a lookout amid and after those.
type vigil struct {
	agent *Agent

	mu       sync.Mutex // guards what follows
	incident string     // that it is of
	kept     bool       // a pass has begun since: who took something took it while this watched
	asked    time.Time  // when each block was asked about last
	doubted  bool       // some are held no more, by the coordinator's word
	doubtAt  time.Time  // when it was asked for such a word last
	over     []string   // apps that were said to be over: what there is of theirs was left behind
	since    uint64     // the event after which all of it happened
	log      uint64     // that the event is of
	was      fates      // those of takers and heirs when their blocks were
	parted   []string   // takers that may have been gone at some time, and have handed on what they had
	heirs    []string   // who had what was asked about, by the answers
	stale    []string   // who was away when told what to forget, once the drain was over
}

// lookout keeps the vigil while a drain runs and once it is over. One goroutine uses it.
type lookout struct {
	*vigil
	ended  time.Time // the end of the drain that takers is of
	looked time.Time // when they were asked about last
	takers []string
	ends   bool // apps have ended, or the end of one was taken back
	untold bool // there was no time to tell all of what is out of date
}

// fates are what became of nodes: those that are gone, and under whose names other machines are there, by their ids.
type fates struct {
	gone    []string
	renewed map[string]string
}

// left says whether a node is not there any more as the machine that it was.
func (f fates) left(node string) bool {
	_, another := f.renewed[node]
	return another || slices.Contains(f.gone, node)
}

// knew says whether it was so already.
func (f fates) knew(is fates, node string) bool {
	return slices.Contains(f.gone, node) == slices.Contains(is.gone, node) && f.renewed[node] == is.renewed[node]
}

// question is what a pass asks of the blocks that earlier ones carried.
type question struct {
	began  time.Time
	absent []string // about what these took; nil: about all, unless none is asked
	none   bool
	doubt  bool  // it was asked for the coordinator's word
	is     fates // of takers and heirs

	mu     sync.Mutex // guards what follows: a pass may leave behind who asks
	unsure bool       // of the answer
	has    []string   // by the answer
}

// before is what a pass is to ask that begins now.
func (v *vigil) before(ctx context.Context, incident, dir string) *question {
	v.turn(incident)
	q := &question{began: time.Now()}
	takers := v.agent.takers(dir)
	if len(takers) == 0 {
		v.agent.adopt(incident, dir)
		takers = v.agent.takers(dir)
	}
	v.keep(takers)
	if len(takers) == 0 {
		q.none = true
		v.agent.aside.Go(func() { v.begin(ctx, q.began, dir) }) // the first pass has no second to wait
		return q
	}
	ctx, cancel := context.WithTimeout(ctx, vigilTimeout)
	defer cancel()
	var news []string
	q.is, news = v.losses(ctx, takers)
	var all bool
	if all, q.doubt = v.asksAll(doubtGap); !all {
		q.absent, q.none = news, len(news) == 0
	}
	return q
}

// doubt notes that nobody has some of what was carried, by the coordinator's word.
func (v *vigil) doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doubted = true
}

// asksAll says whether it is time to ask about each block, and whether that is for doubt. Who is told so asks.
func (v *vigil) asksAll(gap time.Duration) (all, doubt bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.doubted && time.Since(v.doubtAt) >= gap {
		v.doubted, v.doubtAt = false, time.Now()
		return true, true
	}
	return time.Since(v.asked) >= askHeldEvery, false
}

// keep notes that a pass begins. Who took something before the first was not watched: another machine may be there, under its name, by now.
func (v *vigil) keep(takers []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.kept {
		v.kept, v.parted = true, union(v.parted, takers)
	}
}

// put has a drain ask it.
func (v *vigil) put(q *question, cfg *migration.DrainConfig) {
	if q.none {
		return
	}
	cfg.Absent = q.absent
	cfg.Lapsed = func(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
		if q.absent != nil {
			age = max(age, absentFor)
		}
		h, err := v.agent.checkHeld(ctx, age, blocks)
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

// after notes that the pass is over. What it got no whole answer to is asked again.
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

// begin notes that there is nothing yet to ask about, if it is known what comes after that before somebody has taken anything.
func (v *vigil) begin(ctx context.Context, at time.Time, dir string) {
	_, _ = v.losses(ctx, nil)
	nobody := len(v.agent.takers(dir)) == 0
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.since > 0 && nobody {
		v.asked = at
	}
}

// due is when it is time to look at what the drain of p has carried.
func (v *lookout) due(p page) time.Time {
	if v.turn(p.Incident.ID); p.Work.Drained != nil && !p.Work.Drained.Finished.Equal(v.ended) {
		return time.Now()
	}
	return v.looked.Add(vigilEvery)
}

// amid has the drain of p, which runs, carry again what took who is gone.
func (v *lookout) amid(ctx context.Context, p page) {
	v.looked = time.Now()
	var takers []string
	d := v.agent.drains.of(v.agent.accountDir(p.Incident.ID))
	if d != nil {
		takers = d.Takers()
	}
	is, news := v.losses(ctx, takers) // the first notes what all that follows comes after
	if len(news) > 0 {
		v.carry(ctx, d, &question{absent: news, is: is}, news)
	}
	if d == nil || len(takers) == 0 {
		return
	}
	// What moved a moment ago nobody can tell of yet, and that is not what is doubted.
	if _, doubt := v.asksAll(vigilEvery); doubt && !v.carry(ctx, d, &question{began: v.looked, is: is}, takers) {
		v.doubt()
	}
}

// carry has a drain that runs carry again what nobody has of what peers took. It reports false when that could not be said.
func (v *lookout) carry(ctx context.Context, d *migration.Drain, q *question, took []string) bool {
	var cfg migration.DrainConfig
	v.put(q, &cfg)
	heard, err := d.CarryLapsed(ctx, took, cfg.Lapsed)
	if err != nil {
		v.agent.log.Warn("cannot learn whether peers still hold what they took", "peers", took, "err", err)
	}
	if heard {
		v.after(q)
	}
	return heard
}

// finds is what to ask in another pass of the drain of p; nil: nothing, since somebody has all of what it carried, or this node has
// it no more, or has no time to carry it again.
func (v *lookout) finds(ctx context.Context, p page) *question {
	a, dir := v.agent, v.agent.accountDir(p.Incident.ID)
	v.looked = time.Now()
	v.turn(p.Incident.ID)
	another := !p.Work.Drained.Finished.Equal(v.ended)
	if another {
		v.ended, v.takers = p.Work.Drained.Finished, a.takers(dir)
		v.remember(dir)
	}
	q := &question{began: v.looked}
	var news []string
	q.is, news = v.losses(ctx, v.takers)
	v.forget(ctx, another, q.is, func(ctx context.Context) ([]string, error) {
		return migration.ForgetRest(ctx, a.drainConfig(p.Incident.ID, dir, 0))
	})
	if time.Until(a.againUntil(p.Incident, time.Now())) < leastAgain {
		return nil
	}
	if v.ends && v.resumed(ctx) || another && a.leftSome(ctx, p) {
		return &question{none: true}
	}
	var all bool
	if all, q.doubt = v.asksAll(vigilEvery); !all {
		if q.absent = news; len(news) == 0 {
			return nil
		}
	}
	cfg := a.drainConfig(p.Incident.ID, dir, 0)
	v.put(q, &cfg)
	some, err := migration.AnyLapsed(ctx, cfg, max(0, time.Since(v.ended)))
	if err != nil {
		a.log.Debug("nobody says whether what was carried is still held", "err", err)
	}
	if !some {
		v.after(q)
		return nil
	}
	return q
}

// leftSome says whether an earlier process drained the node, and there is something now that it did not carry: a disk may be mounted that was
// not.
func (a *Agent) leftSome(ctx context.Context, p page) bool {
	return a.drains.of(a.accountDir(p.Incident.ID)) == nil && a.anyLeft(ctx, p, manifest.Skipped)
}

// resumed says whether the end of an app was taken back: a drain has left behind what there is of it.
func (v *lookout) resumed(ctx context.Context) bool {
	v.mu.Lock()
	were := v.over
	v.mu.Unlock()
	are, err := v.agent.appsOver(ctx, were)
	if v.ends = err != nil; v.ends {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = slices.DeleteFunc(slices.Clone(v.over), func(app string) bool { return slices.Contains(were, app) && are[app] == "" })
	return len(are) < len(were)
}

// remember has it asked whether the apps are over yet of which an earlier process left something behind.
func (v *lookout) remember(dir string) {
	if v.agent.drains.of(dir) != nil {
		return // it was this one
	}
	apps, err := migration.AppsLeft(dir)
	if err != nil {
		v.agent.log.Warn("cannot read which apps were over: what is here of them stays, even if an end is taken back", "err", err)
	}
	if len(apps) > 0 {
		v.leave(apps)
		v.ends = true
	}
}

// leave notes apps that are over.
func (v *vigil) leave(over []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.over) < mostOver {
		v.over = union(v.over, over)
	}
}

// forget has those told of copies that are out of date who were away before, and first finds out who was. Where there was no time for all,
// the next look goes on.
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
			v.agent.log.Warn("not all peers could be told yet which copies are out of date", "err", err)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stale = away
}

// losses are what became of the takers and their heirs, and the takers about whose blocks to ask therefore: those that are not there any
// more, and with an heir all that may have handed on to it.
func (v *vigil) losses(ctx context.Context, takers []string) (is fates, news []string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v.mu.Lock()
	since, peers := v.since, union(union(takers, v.heirs), v.stale)
	v.mu.Unlock()
	said, err := v.agent.beat.CheckPeers(ctx, since, peers)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		return v.was, nil
	}
	if another := v.since > 0 && (said.Index < v.since || said.Log != v.log); another || v.since == 0 {
		v.since, v.log = said.Index, said.Log
		v.parted, v.doubted = union(v.parted, takers), v.doubted || another // nothing is known of what was before
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

// turn begins anew with another incident.
func (v *vigil) turn(incident string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.incident != incident {
		v.incident, v.kept, v.asked, v.since, v.was, v.parted, v.heirs, v.stale, v.over = incident, false, time.Time{}, 0, fates{}, nil, nil, nil, nil
	}
}

func (a *Agent) takers(dir string) []string {
	takers, err := migration.Takers(dir)
	if err != nil {
		a.log.Warn("cannot read who took what was carried", "err", err)
	}
	return takers
}
