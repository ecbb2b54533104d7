package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/preemption"
)

// work is what the agent has done about the open incident; the journal remembers it.
type work struct {
	// Drained is the result of the drain, once it is over: a restart does not begin it again.
	Drained *manifest.Summary `json:"drained,omitempty"`
	// Unfinished names what the drain waited for and what still went on when time was up.
	Unfinished []string `json:"unfinished,omitempty"`
	// Told says that the coordinator has the manifest.
	Told bool `json:"told,omitempty"`
	// Kept says that a peer has the manifest.
	Kept bool `json:"kept,omitempty"`
	// Again says that another pass runs: until it is over, the account differs from what Drained says.
	Again bool `json:"again,omitempty"`
	// Undone says that a drain that was over no longer counts, and that the coordinator may take the node for gone because
	// of it.
	Undone bool `json:"undone,omitempty"`
}

// undoRehearsed forgets the drain of a rehearsal when a notice in earnest comes: blocks that the pretended time was too
// short for have all of the real time.
func undoRehearsed(was preemption.Incident, p *page) {
	if p.Work.Drained != nil && was.Rehearsed() && !p.Incident.Rehearsed() {
		p.Work = work{Undone: true}
	}
}

// undoCut forgets a drain that lost blocks when the node goes on leaving and has time for them after all: the deadline has moved away, or
// the notice was taken back that set it.
func (r *rules) undoCut(was preemption.Incident, p *page) {
	i := p.Incident
	later := !was.Deadline().IsZero() && (i.Deadline().IsZero() || i.Deadline().After(was.Deadline()))
	if d := p.Work.Drained; d != nil && d.Lost.Blocks > 0 && i.Leaving() && later && time.Until(r.againUntil(i, time.Now())) >= leastAgain {
		p.Work = work{}
	}
}

// stands reports whether the drain that is over is still the one that ended at that time. After another pass it is a
// different one, and there is none after a notice in earnest that followed a rehearsal, or when there is time again.
func (w *work) stands(ended time.Time) bool {
	return w.Drained != nil && w.Drained.Finished.Equal(ended)
}

type page = preemption.Page[work]

// incidents keeps the open incident, and answers what the rest of the agent asks of it.
type incidents struct{ *preemption.Keeper[work] }

// current returns the open incident, or the zero one.
func (in *incidents) current() preemption.Incident {
	p, _ := in.Open()
	return p.Incident
}

// until waits until is returns true for the open incident; false: ctx ended before.
func (in *incidents) until(ctx context.Context, is func(p page, open bool) bool) bool {
	for {
		changed := in.Changes()
		if is(in.Open()) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// leaving reports whether the open incident asks for a drain now.
func (in *incidents) leaving() bool {
	stance, _ := in.Stance()
	return stance.AtLeast(preemption.StanceDrain)
}

// retryNoticed is how long a leaving peer waits before it asks a node under notice again: the notice may be withdrawn.
const retryNoticed = 2 * time.Second

// admit says whether this node takes blocks now. Blocks must not land on a machine that goes too. A machine that is only
// advised to go may stay, so it takes blocks that no other peer takes.
func (in *incidents) admit(advised bool) receiver.Admission {
	if !in.IsOpen() { // the cheap answer first: admit is called for every block
		return receiver.Admission{}
	}
	switch stance, _ := in.Stance(); {
	case !stance.AtLeast(preemption.StanceWatch):
		return receiver.Admission{}
	case advised && !stance.AtLeast(preemption.StanceDrain):
		return receiver.Admission{Advised: true}
	}
	i := in.current()
	return receiver.Admission{Refused: "this node is under notice itself: " + string(i.Kind()), Retry: retryNoticed}
}

// join makes a notice part of the incident. The notice is on disk before anything acts on it.
func (c *course) join(ctx context.Context, n preemption.Notice) {
	began := time.Now()
	was, _ := c.incidents.Open()
	p, changed, err := c.incidents.Join(n, undoRehearsed, c.limits.undoCut)
	if n.Source == preemption.SourceLogind && c.waitsForNothing(n) { // even if the policy ignores it, and the incident has not changed
		c.letGo(ctx, n)
	}
	if !changed {
		return
	}
	i := p.Incident
	if err != nil {
		// A full disk must not stop the drain that would empty it. The price: a restart now would not resume it.
		c.log.Error("cannot write the incident to the journal: a restart would forget it", "incident", i.ID, "err", err)
	}
	stance, _ := c.incidents.Stance()
	c.log.Info("notice", "incident", i.ID, "kind", n.Kind, "source", n.Source, "withdrawn", n.Withdrawn, "stance", stance,
		preemption.Left(n.Deadline), "reason", n.Reason, "took", time.Since(began))
	c.counts.joined(was.Incident, i, n)
	c.fleet.Nudge()
	if i.Withdrawn() && !p.Begun {
		c.recommission(ctx, errWithdrawn) // the node only watched or copied ahead: no drain has begun
	}
}

// reviewEvery is how often an appointment is reviewed: the estimate of how long leaving takes changes while blocks are
// copied ahead.
const reviewEvery = 10 * time.Second

// untilDue derives a context from ctx that ends when the incident is due for a review, without any new notice.
func (in *incidents) untilDue(ctx context.Context) (context.Context, context.CancelFunc) {
	var due time.Time
	if _, changes := in.Stance(); !changes.IsZero() {
		due = time.Now().Add(reviewEvery)
		if changes.Before(due) {
			due = changes
		}
	}
	if i := in.current(); !i.OutlivedAt().IsZero() && (due.IsZero() || i.OutlivedAt().Before(due)) {
		due = i.OutlivedAt()
	}
	if due.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, due)
}

// review acts on an incident that is due without a new notice: it is time to leave for an appointment, or the machine has
// outlived the incident.
func (c *course) review(ctx context.Context) {
	p, open := c.incidents.Open()
	if !open || p.Begun { // leave checks by itself whether the incident is over
		return
	}
	if c.incidents.outlived() {
		c.recommission(ctx, errOutlived)
		return
	}
	if c.incidents.leaving() {
		c.begin(p.Incident)
	}
}

// begin records that the node begins to leave because its appointment is near.
func (c *course) begin(i preemption.Incident) {
	if err := c.incidents.Begin(); err != nil {
		c.log.Error("cannot write to the journal that the drain has begun", "incident", i.ID, "err", err)
	}
	c.log.Info("it is time to leave", "incident", i.ID, "kind", i.Kind(), preemption.Left(i.Deadline()))
	c.fleet.Nudge()
}

func (in *incidents) outlived() bool {
	i := in.current()
	return i.Outlived()
}

// staysAfterAll says why a node that is leaving need not leave any more; nil: it must.
func (c *course) staysAfterAll() error {
	i := c.incidents.current()
	switch {
	case !c.incidents.leaving(): // the notices in force are for later, or ask for less than a drain
		return errWithdrawn
	case c.incidents.outlived():
		c.log.Warn("the machine outlived its deadline: it is taken back into service", "incident", i.ID, "deadline", i.Deadline())
		return errOutlived
	default:
		return nil
	}
}

// DecommissionSelf says that this node is going: it serves the socket, the shell trigger and SIGPWR. A zero deadline is an
// unknown one. It returns the incident once it is on disk.
func (a *Agent) DecommissionSelf(ctx context.Context, source string, deadline time.Time, reason string) (preemption.Incident, error) {
	return a.course.say(ctx, preemption.Notice{Source: source, ID: source, Kind: preemption.KindManual, Deadline: deadline, SeenAt: time.Now(), Reason: reason})
}

// Cancel takes back the notices that were given on this host. still names the notice for which the node leaves all the same,
// and how that one is taken back, if it can be.
func (a *Agent) Cancel(ctx context.Context, reason string) (cancelled bool, still string) {
	return a.course.cancel(ctx, reason)
}

// errIgnored answers a notice that the policy ignores.
var errIgnored = errors.New("the notice is ignored")

// say passes on a notice that was given on this host, and returns the incident that it joined, once that is on disk.
func (c *course) say(ctx context.Context, n preemption.Notice) (preemption.Incident, error) {
	if c.limits.policy().Stance(n.Kind) == preemption.StanceIgnore {
		return preemption.Incident{}, fmt.Errorf("%w: policy.%s is ignore", errIgnored, n.Kind)
	}
	return preemption.Say(ctx, c.manual, c.incidents.Keeper, n)
}

// cancel serves Cancel.
func (c *course) cancel(ctx context.Context, reason string) (cancelled bool, still string) {
	cancelled = c.manual.Withdraw(reason)
	if !cancelled {
		return false, c.leavesFor(c.incidents.current())
	}
	heeded := c.incidents.until(ctx, func(p page, open bool) bool {
		if !open {
			return true
		}
		i := p.Incident
		if i.SaidHere() || i.Withdrawn() {
			return false
		}
		still = c.leavesFor(i)
		return true
	})
	if !heeded {
		return true, ctx.Err().Error()
	}
	return true, still
}

// leavesFor names the notice for which the node leaves, now or later, as for an appointment; empty: no notice goes beyond
// advice.
func (c *course) leavesFor(i preemption.Incident) string {
	inTheEnd, now := i.Deadline(), time.Now()
	if inTheEnd.Before(now) {
		inTheEnd = now
	}
	if stance, _ := i.Stance(inTheEnd, 0); !stance.AtLeast(preemption.StanceDrain) {
		return ""
	}
	said := i.Source() + " says " + string(i.Kind())
	if i.Source() == preemption.SourceOperator {
		said += ", which lifeboat recommission " + c.fleet.node + " takes back"
	}
	return said
}

// drains is the drain that runs or ran last.
type drains struct {
	mu    sync.Mutex
	last  *migration.Drain // nil: none since the start
	moved inventory.Count  // by an earlier process, for the open incident; zero once a drain has resumed it
	ahead bool             // it only copies ahead
	more  bool             // another pass follows
	freed time.Time        // until when a drain may have waited
	looks time.Time        // the newest notice for which wroteSince has looked for new writes
}

func (s *drains) set(d *migration.Drain, ahead, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.ahead, s.more, s.moved = d, ahead, more, inventory.Count{}
}

// resume notes what an earlier process had moved. The next drain may wait for answers before it begins, and until then the
// status should not show that nothing is safe.
func (s *drains) resume(moved inventory.Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = moved
}

func (s *drains) resumed() inventory.Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// of returns the last drain if its account is in dir.
func (s *drains) of(dir string) *migration.Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.Dir() != dir {
		return nil
	}
	return s.last
}

func (s *drains) free(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = now
}

func (s *drains) look(said time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = said
}

func (s *drains) lookedFor() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func (s *drains) freedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// limit changes the cap of the drain that runs, if there is one.
func (s *drains) limit(l Drain) {
	s.mu.Lock()
	d, bytesPerSecond := s.last, l.MaxBytesPerSecond
	if s.ahead {
		bytesPerSecond = l.PreCopyBytesPerSecond
	}
	s.mu.Unlock()
	if d != nil {
		d.Limit(int64(bytesPerSecond))
	}
}

func (s *drains) progress() (p migration.Progress, ahead, ok bool) {
	s.mu.Lock()
	d, ahead, more := s.last, s.ahead, s.more
	s.mu.Unlock()
	if d == nil {
		return migration.Progress{}, false, false
	}
	p = d.Progress()
	if more && p.Phase == migration.PhaseDrained { // only this pass is over
		p.Phase = migration.PhaseSending
	}
	return p, ahead, true
}
