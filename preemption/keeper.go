package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
)

// Page is what the journal holds of an incident. W is what its owner has done about it.
type Page[W any] struct {
	Incident Incident `json:"incident"`
	// Begun says that the node has begun to leave. Only the end of the incident resets it. Notice.LeftAt says for which
	// notices it has: once these are withdrawn the node need not leave any more.
	Begun bool `json:"begun,omitempty"`
	Work  W    `json:"work"`
	// Closed says why the incident is over while the machine is not.
	Closed string `json:"closed,omitempty"`
	// Clock is when the page was written. Every instant in the page is by that wall clock.
	Clock Moment `json:"clock"`
}

// KeeperConfig is what a Keeper needs to know.
type KeeperConfig struct {
	Dir string // of the journal; it is made if it is not there
	Log *slog.Logger

	Policy   func() Policy        // in force now; nil: the defaults
	Estimate func() time.Duration // how long emptying the node would take now; nil: not known
	Clock    func() Moment        // nil: Now. In a synctest bubble the kernel's clock is another than the bubble's
	Synced   func(time.Duration)  // told how long each write of the journal took; may be nil
	Ballast  *durable.Ballast     // given up when the journal's disk is full; nil: there is none
	Disk     *durable.Beside      // writes to the journal's disk; nil: one of the keeper's own
}

// Keeper keeps this machine's open incident. A change by a notice is on disk before anybody sees it, so a restart finds the
// incident, and as much time left as there truly is, even if the clock was set meanwhile. A disk that is full or fails holds
// up nobody, and one that hangs no longer than durable.Patience: a machine that is about to go must not lose its data for a
// page about it. The page is written once the disk answers.
//
// It is safe for concurrent use.
type Keeper[W any] struct {
	cfg     KeeperConfig
	journal *journal[W]
	writes  sync.Mutex // held while a page is changed and written; mu is not: a disk may hang, and the heartbeat takes mu

	mu    sync.Mutex // guards what follows
	open  bool
	page  Page[W]
	ended ended[W]

	changed await.News // the incident changes
}

// ended is the newest ended incident, as far as the journal could be read. It is kept in memory, because people ask what
// became of a machine while its disk hangs, too.
type ended[W any] struct {
	page Page[W]
	is   bool
	err  error
}

// OpenKeeper opens the journal in cfg.Dir. An incident that an earlier process left open is open again. The notices that a
// boot since then has settled are withdrawn; if that leaves none, it is for the owner to end the incident.
func OpenKeeper[W any](cfg KeeperConfig) (*Keeper[W], error) {
	if cfg.Clock == nil {
		cfg.Clock = Now
	}
	if cfg.Policy == nil {
		cfg.Policy = func() Policy { return nil }
	}
	if cfg.Estimate == nil {
		cfg.Estimate = func() time.Duration { return 0 }
	}
	if cfg.Synced == nil {
		cfg.Synced = func(time.Duration) {}
	}
	if cfg.Disk == nil {
		cfg.Disk = &durable.Beside{}
	}
	j, err := openJournal[W](cfg.Dir)
	if err != nil {
		return nil, err
	}
	k := &Keeper[W]{cfg: cfg, journal: j}
	p, ok, err := j.read()
	if err != nil {
		return k, err
	}
	if k.ended.page, k.ended.is, k.ended.err = j.lastEnded(); !ok {
		return k, nil
	}
	k.resume(&p)
	k.open, k.page = true, p
	return k, nil
}

// resume corrects a page of an earlier process: it moves the instants by as much as the wall clock was set since, and
// withdraws the notices that a boot settles.
func (k *Keeper[W]) resume(p *Page[W]) {
	now := k.cfg.Clock()
	if p.Clock.Wall.IsZero() {
		return // a page without a clock of its own: its instants are all there is
	}
	step := p.Clock.step(now)
	if step.Abs() > slack {
		k.cfg.Log.Warn("the clock was set since the incident was written: its deadline keeps its distance", "incident", p.Incident.ID, "step", step)
	} else {
		step = 0
	}
	booted := p.Clock.Boot != "" && now.Boot != "" && !p.Clock.sameBoot(now)
	for i := range p.Incident.Notices {
		n := &p.Incident.Notices[i]
		n.SeenAt = anchored(n.SeenAt.Add(step))
		if !n.LeftAt.IsZero() {
			n.LeftAt = anchored(n.LeftAt.Add(step))
		}
		if !n.Deadline.IsZero() {
			n.Deadline = anchored(n.Deadline.Add(step))
		}
		if booted && !n.Withdrawn && n.settledBy(now.Wall) {
			n.Withdrawn, n.Reason = true, "the machine has booted since"
		}
	}
}

// settledBy reports whether a boot at that time has settled the notice. A cloud that took the machine at the announced time,
// and has started it again, says nothing more about it: until it has answered so, the node would leave, and tell and stop
// what runs here anew. If the cloud does say it still, that is another notice.
func (n Notice) settledBy(boot time.Time) bool {
	came := !n.LeftAt.IsZero() && slices.Contains(Providers(), n.Source) && !n.Deadline.After(boot)
	return came || n.Kind.endsWithBoot() || n.Source == SourceSignal
}

// anchored returns an instant that is measured by the monotonic clock from now on, so that a step of the wall clock brings
// it no closer.
func anchored(t time.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(now))
}

// Join makes a notice part of the open incident, or opens one, and reports whether that changed anything. A notice that the
// policy ignores changes nothing, unless it is already part of the incident. The error says why the change, which holds, is
// not on disk: a restart would forget it.
//
// After the change, work done so far may count for less. The functions so adjust the page for that, in the same write; they
// get the incident as it was before.
func (k *Keeper[W]) Join(n Notice, so ...func(was Incident, p *Page[W])) (p Page[W], changed bool, err error) {
	k.writes.Lock()
	defer k.writes.Unlock()
	n.Stance, n.LeftAt = k.cfg.Policy().Stance(n.Kind), time.Time{}
	if !n.Deadline.IsZero() {
		n.Deadline = anchored(n.Deadline)
	}
	p, open := k.Open()
	was := p.Incident
	switch {
	case n.Stance == StanceIgnore && !(open && p.Incident.has(n)):
		if !n.Withdrawn {
			var when slog.Attr // empty where no deadline is known
			if !n.Deadline.IsZero() {
				when = slog.Time("deadline", n.Deadline)
			}
			k.cfg.Log.Info("notice ignored: the policy says so", "kind", n.Kind, "source", n.Source, when, "reason", n.Reason)
		}
		return p, false, nil
	case open:
		if !p.Incident.Join(n) {
			return p, false, nil
		}
		p.Incident.hurry(was, time.Now())
	case n.Withdrawn:
		return Page[W]{}, false, nil // the withdrawal of a notice that never was part of an incident here
	default:
		p = Page[W]{Incident: Open(n)}
	}
	if p.Incident.leave(time.Now(), k.cfg.Estimate()) {
		p.Begun = true
	}
	for _, change := range so {
		change(was, &p)
	}
	err = k.write(p)
	k.set(true, p)
	return p, true, err
}

// Begin records that the node begins to leave because it is time to.
func (k *Keeper[W]) Begin() error {
	estimate := k.cfg.Estimate()
	return k.amend(func(p *Page[W]) { p.Begun = p.Incident.leave(time.Now(), estimate) || p.Begun })
}

// Amend changes what was done about the open incident, on disk first. Where the disk fails, the change holds all the same.
func (k *Keeper[W]) Amend(change func(*W)) error {
	return k.amend(func(p *Page[W]) { change(&p.Work) })
}

func (k *Keeper[W]) amend(change func(*Page[W])) error {
	k.writes.Lock()
	defer k.writes.Unlock()
	p, open := k.Open()
	if !open {
		return errors.New("no incident is open")
	}
	change(&p)
	err := k.write(p)
	k.set(true, p)
	return err
}

// Close ends the open incident: the machine stays. The error says why a restart would open it again.
func (k *Keeper[W]) Close(why string) error {
	k.writes.Lock()
	defer k.writes.Unlock()
	p, open := k.Open()
	if !open {
		return nil
	}
	p.Closed, p.Clock = why, k.cfg.Clock()
	k.mu.Lock()
	k.ended = ended[W]{page: p, is: true}
	k.mu.Unlock()
	k.set(false, Page[W]{})
	return k.end(p)
}

// Open returns the page of the open incident.
func (k *Keeper[W]) Open() (p Page[W], open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.page, k.open
}

// IsOpen reports whether there is an open incident.
func (k *Keeper[W]) IsOpen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open
}

// Last returns the page of the open incident, or else of the newest one that ended. It does not wait for the disk.
func (k *Keeper[W]) Last() (Page[W], bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open {
		return k.page, true, nil
	}
	return k.ended.page, k.ended.is, k.ended.err
}

// Stance is how far the node should go now, and when that changes by itself (zero: it does not).
func (k *Keeper[W]) Stance() (stance Stance, changes time.Time) {
	p, open := k.Open()
	switch {
	case !open || p.Incident.Withdrawn():
		return StanceIgnore, time.Time{}
	case p.Incident.Leaving():
		return StanceDrain, time.Time{}
	default:
		return p.Incident.Stance(time.Now(), k.cfg.Estimate())
	}
}

// Changes returns a channel that is closed when the incident changes next.
func (k *Keeper[W]) Changes() <-chan struct{} {
	return k.changed.Next()
}

// Dir is where an incident's owner may keep its files. The directories of ended incidents are kept for a while.
func (k *Keeper[W]) Dir(incident string) string { return k.journal.dirOf(incident) }

// set makes a page visible to everybody. The caller holds writes.
func (k *Keeper[W]) set(open bool, p Page[W]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open, k.page = open, p
	k.changed.Tell()
}

// write puts a page on disk. The caller holds writes.
func (k *Keeper[W]) write(p Page[W]) error {
	began := time.Now()
	p.Clock = k.cfg.Clock()
	p.Incident.Notices = p.Incident.byWall(p.Clock.Wall)
	err := k.insist("incident "+p.Incident.ID, p, k.journal.write)
	k.cfg.Synced(time.Since(began))
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// end moves the page of an incident that is over into the incident's directory.
func (k *Keeper[W]) end(p Page[W]) error {
	err := k.insist("the end of incident "+p.Incident.ID, p, func(page []byte) error { return k.journal.close(p.Incident.ID, page) })
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// insist writes a page, and makes room for it on a full disk.
func (k *Keeper[W]) insist(what string, p Page[W], write func(page []byte) error) error {
	page, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return k.cfg.Disk.Do(what, func() error {
		err := write(page)
		if durable.Full(err) && k.cfg.Ballast.Free() {
			err = write(page)
		}
		return err
	})
}

// byWall returns the notices with their instants as the wall clock shows them at now. For an instant that was anchored
// before the clock was set, the distance by the wall clock differs from the true one.
func (i *Incident) byWall(now time.Time) []Notice {
	notices := make([]Notice, len(i.Notices))
	for k, n := range i.Notices {
		n.SeenAt = now.Add(n.SeenAt.Sub(now)).Round(0)
		if !n.LeftAt.IsZero() {
			n.LeftAt = now.Add(n.LeftAt.Sub(now)).Round(0)
		}
		if !n.Deadline.IsZero() {
			n.Deadline = now.Add(n.Deadline.Sub(now)).Round(0)
		}
		notices[k] = n
	}
	return notices
}

// has reports whether the notice is already part of the incident.
func (i *Incident) has(n Notice) bool { return slices.ContainsFunc(i.Notices, n.same) }
