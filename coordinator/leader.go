package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// Why one coordinator of several decides nothing.
var (
	// errFollows: it does not lead, and nothing was done.
	errFollows = errors.New("this coordinator does not lead")
	// errDeposed: it lost the lead, and the command may have been done all the same. Every command may be repeated: the second time changes
	// nothing.
	errDeposed = errors.New("another coordinator took the lead meanwhile")
)

// office is a coordinator's term as the leader. It lasts from when the coordinator has applied all earlier decisions until it hears that
// it leads no more. Calls and streams hold the term as a context.
type office struct {
	lease time.Duration // how long after a majority confirmed the lead no other can have been elected

	asking chan struct{} // holds one while the others are asked: callers that wait for it use the same answer

	mu     sync.Mutex      // guards what follows
	base   context.Context // parent of term
	number uint64          // of the term, in raft's count
	term   context.Context
	leave  context.CancelFunc
	sure   time.Time // when the question was asked to which a majority last said that this one leads

	turned await.News // there may be another leader
}

func newOffice(lease time.Duration) *office {
	return &office{lease: lease, asking: make(chan struct{}, 1)}
}

// enter begins the term of that number.
func (o *office) enter(ctx context.Context, number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.number = ctx, number
	o.begin()
}

// resume begins the term again that quit ended, unless another has begun since: that one must not be lost.
func (o *office) resume(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.term == nil && o.number == number && number > 0 {
		o.begin()
	}
}

func (o *office) begin() {
	o.term, o.leave = context.WithCancel(o.base)
	o.sure = time.Time{}
	o.turned.Tell()
}

// quit ends the term, and with it all calls and streams that hold it. It returns the term's number, for resume; 0: there was no term.
func (o *office) quit() (number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leave == nil {
		return 0
	}
	o.leave()
	o.term, o.leave = nil, nil
	return o.number
}

// now is the present term, given raft's number; nil: this coordinator is not in office. sure says that no other coordinator can have been
// elected. A term is over once raft has a higher number, even if govern has not heard of it yet, and even if this coordinator was
// elected again since: it may lack what another leader decided in between.
func (o *office) now(number uint64) (term context.Context, sure bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.term == nil || o.term.Err() != nil || o.number != number {
		return nil, false
	}
	return o.term, time.Since(o.sure) < o.lease
}

func (o *office) agreed(term context.Context, asked time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.term == term {
		o.sure = asked
	}
}

// lead returns the term in which a call may be answered: a context that ends when another coordinator may lead. A leader that was cut off
// does not know that it was replaced, so lead asks the followers. Followers that have just heard a leader vote for no other for the
// length of the election timeout; for half of that (office.lease) lead need not ask again.
func (l *ledger) lead() (context.Context, error) {
	term, sure := l.inOffice()
	if term == nil || !l.alone() && l.store.Hangs() != nil { // with a hanging disk raft would not answer
		return nil, errFollows
	}
	if sure || l.alone() {
		return term, nil
	}
	l.office.asking <- struct{}{}
	defer func() { <-l.office.asking }()
	switch now, sure := l.inOffice(); {
	case now != term:
		return nil, errFollows
	case sure:
		return term, nil
	}
	asked := time.Now()
	if err := l.leadsStill(); err != nil {
		return nil, errFollows
	}
	l.office.agreed(term, asked)
	if now, _ := l.inOffice(); now != term {
		return nil, errFollows
	}
	return term, nil
}

// leadSoon is lead for a call: while no leader is known it waits, for as long as an election takes.
func (l *ledger) leadSoon(ctx context.Context) (term context.Context, err error) {
	if term, err = l.lead(); err == nil {
		return term, nil
	}
	l.await(ctx)
	return l.lead()
}

// term is the number of raft's term; 0 for a coordinator on its own, which leads in all of them.
func (l *ledger) term() uint64 {
	if l.alone() {
		return 0
	}
	return l.raft.CurrentTerm()
}

// reign is the number of the term in which this coordinator took the lead. Raft's own may be a later one, in which another leads.
func (l *ledger) reign() uint64 {
	if l.alone() {
		return l.raft.CurrentTerm()
	}
	o := l.office
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.number
}

func (l *ledger) inOffice() (term context.Context, sure bool) { return l.office.now(l.term()) }

// await returns once a leader is known, this coordinator or another, and at the latest after the election timeout. Calls that wait here
// for milliseconds need not be repeated by their callers.
func (l *ledger) await(ctx context.Context) {
	if l.alone() {
		return
	}
	patience := time.After(2 * l.office.lease)
	for {
		turned := l.office.turned.Next()
		term, _ := l.inOffice()
		if name, _ := l.leader(); term != nil || name != "" && name != string(l.own) {
			return
		}
		select {
		case <-turned:
		case <-patience:
			return
		case <-ctx.Done():
			return
		}
	}
}

// verify fails if the registry here may not be the newest. A coordinator that leads and is still taking over is not in office yet: it asks
// the others.
func (l *ledger) verify() error {
	if l.alone() {
		return nil
	}
	if term, _ := l.inOffice(); term == nil && l.leads() {
		if err := l.leadsStill(); err != nil {
			return errFollows
		}
		return nil
	}
	_, err := l.lead()
	return err
}

// leadsStill asks the other coordinators whether this one still leads.
func (l *ledger) leadsStill() error {
	return l.store.UnlessHung(func() error { return l.raft.VerifyLeader().Error() })
}

// whyNot turns raft's error into errFollows, errDeposed or errNoLog, which callers act on.
func (l *ledger) whyNot(err error) error {
	_, hangs := errors.AsType[raftstore.HangsError](err)
	switch {
	case l.alone():
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errFollows
	case hangs, errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w (%w)", errDeposed, err)
	}
	return fmt.Errorf("%w (%w)", errNoLog, err)
}

// leader is the leader's name and address, as far as known here; empty: none is known.
func (l *ledger) leader() (name, address string) {
	at, id := l.raft.LeaderWithID()
	if id == "" {
		return "", ""
	}
	if known, err := l.ServerAddr(id); err == nil {
		at = known
	}
	return string(id), string(at)
}

// handOver makes another coordinator the leader: the one that is named, or the one that is furthest in the log. It returns once another
// leads, or with an error after the election timeout.
func (l *ledger) handOver(to string) error {
	var at raft.ServerAddress
	if to != "" {
		var err error
		if at, err = l.ServerAddr(raft.ServerID(to)); err != nil {
			return err
		}
	}
	number := l.office.quit() // from here on another coordinator may decide
	err := l.store.UnlessHung(func() error {
		if to == "" {
			return l.raft.LeadershipTransfer().Error()
		}
		return l.raft.LeadershipTransferToServer(raft.ServerID(to), at).Error()
	})
	if err != nil {
		if l.leads() {
			l.office.resume(number)
		}
		return fmt.Errorf("hand the lead over: %w", err)
	}
	return nil
}

// led reports whether a leader is known here.
func (l *ledger) led() bool {
	name, _ := l.leader()
	return name != ""
}

// servers are the members as raft has them.
func (l *ledger) servers() []raft.Server {
	r := l.started.Load()
	if r == nil {
		return nil
	}
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// among reports whether one of the servers has that name.
func among(servers []raft.Server, name raft.ServerID) bool {
	return slices.ContainsFunc(servers, func(m raft.Server) bool { return m.ID == name })
}

// outside says why this coordinator is no member and therefore hears no leader; empty: it is a member, as far as known here. A
// coordinator that did not run when it was removed learns that from the others (disowned).
func (l *ledger) outside() string {
	if l.alone() {
		return ""
	}
	switch all := l.servers(); {
	case len(all) == 0:
		return "this coordinator is in no fleet yet: the first of peers begins the log, or another is asked to add it (lifeboat raft add)"
	case !among(all, l.own), l.disowned.Load() && !l.led():
		return "this coordinator was removed (lifeboat raft remove): stop it and have nobody ask it any more, or add it again (lifeboat raft add)"
	}
	return ""
}

// leaderless is how long there may be no leader before a warning: an election takes a few times the election timeout.
const leaderless = 5 * time.Second

// noteTurns wakes calls that wait for a leader when there may be one, and logs which coordinator leads, until ctx ends. It runs for longer
// than govern: otherwise calls that wait while this coordinator stops would hold it up.
func (l *ledger) noteTurns(ctx context.Context, log *slog.Logger) error {
	said, leads, known := "", "", "" // the first two as last logged
	late := time.NewTimer(leaderless)
	defer late.Stop()
	for {
		name, address := l.leader()
		switch {
		case name != "":
			late.Stop()
		case known != "":
			late.Reset(leaderless)
		}
		known = name
		if name != "" && name != leads {
			if leads = name; name != string(l.own) { // takeOver logs its own lead
				log.Info("another coordinator leads", "name", name, "address", address)
			}
		}
		if outside := l.outside(); outside != said {
			if said = outside; outside != "" {
				log.Warn("this coordinator is no member of a fleet", "why", outside)
			} else {
				log.Info("this coordinator is a member of its fleet")
			}
		}
		var look <-chan time.Time // raft tells neither a new member that it was let in, nor a removed one without a leader that it was removed
		if said != "" || name == "" {
			look = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look:
		case <-l.turned:
			l.office.turned.Tell()
		case <-late.C:
			if said == "" {
				leads = ""
				log.Warn("no coordinator leads: are more than half of them up, and do they reach each other?")
			}
		}
	}
}
