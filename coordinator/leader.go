package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// Why a coordinator that is one of several decides nothing.
var (
	// errFollows: nothing was done.
	errFollows = errors.New("this coordinator does not lead")
	// errDeposed: it may have been done all the same. Every command may be repeated: the second time changes nothing.
	errDeposed = errors.New("another coordinator took the lead meanwhile")
)

// office is a coordinator's time as the leader, from when it has applied all that came before until it hears that it leads
// no more.
type office struct {
	lease time.Duration // how long after a majority's word nobody else can have been elected

	asking chan struct{} // holds one while the others are asked: who waits for it finds the answer

	mu     sync.Mutex      // guards what follows
	base   context.Context // of the term, and of one that is resumed
	number uint64          // of the term, in raft's count
	term   context.Context
	leave  context.CancelFunc
	sure   time.Time     // when a majority was last asked that then agreed
	turned chan struct{} // closed and replaced when there may be another leader
}

func newOffice(lease time.Duration) *office {
	return &office{lease: lease, asking: make(chan struct{}, 1), turned: make(chan struct{})}
}

// enter begins a time as the leader, in a term of raft's.
func (o *office) enter(ctx context.Context, number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.number = ctx, number
	o.term, o.leave = context.WithCancel(ctx)
	o.sure = time.Time{}
	o.tell()
}

// turns tells all who wait that there may be another leader.
func (o *office) turns() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell()
}

func (o *office) tell() {
	close(o.turned)
	o.turned = make(chan struct{})
}

// turn is closed when there may be another leader.
func (o *office) turn() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turned
}

// quit ends it, and with it all that is under way in its name. It returns what enter takes to resume it.
func (o *office) quit() (base context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leave == nil {
		return nil
	}
	o.leave()
	o.term, o.leave = nil, nil
	return o.base
}

// now is the present time as the leader, given raft's term; nil: there is none. A time is over once another's term has
// followed it, even if nobody has said so yet, and even if this coordinator was elected again since: it may lack what the
// other decided.
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

// lead returns the time as the leader in which a call may be answered: it ends when another may lead. A leader that was
// cut off does not know that it was replaced, so it asks. Followers that heard from it let nobody else be elected for as
// long as an election takes; for half of that their word need not be asked again.
func (l *ledger) lead() (context.Context, error) {
	term, sure := l.inOffice()
	if term == nil || !l.alone() && l.store.Hangs() != nil { // raft would say nothing, neither yes nor no
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

// term is raft's; 0 for one alone, which leads in all of them.
func (l *ledger) term() uint64 {
	if l.alone() {
		return 0
	}
	return l.raft.CurrentTerm()
}

func (l *ledger) inOffice() (term context.Context, sure bool) { return l.office.now(l.term()) }

// await returns once it is known who leads, here or elsewhere, and at the latest after the time that an election takes:
// callers who are held up for milliseconds need not come again.
func (l *ledger) await(ctx context.Context) {
	if l.alone() {
		return
	}
	patience := time.After(2 * l.office.lease)
	for {
		turned := l.office.turn()
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

// verify says whether what is known here is the newest there is. A coordinator that is taking over has just made sure.
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

// leadsStill asks the others.
func (l *ledger) leadsStill() error {
	return l.store.UnlessHung(func() error { return l.raft.VerifyLeader().Error() })
}

// whyNot is why a command was not decided, in the words that callers act on.
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

// leader is who leads, as far as is known here.
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

// handOver makes another coordinator the leader, the one named or the one that is furthest. It returns once somebody else
// leads, or the time that an election takes has passed without.
func (l *ledger) handOver(to string) error {
	var at raft.ServerAddress
	if to != "" {
		var err error
		if at, err = l.ServerAddr(raft.ServerID(to)); err != nil {
			return err
		}
	}
	number := l.term()
	base := l.office.quit() // from here on another may decide
	err := l.store.UnlessHung(func() error {
		if to == "" {
			return l.raft.LeadershipTransfer().Error()
		}
		return l.raft.LeadershipTransferToServer(raft.ServerID(to), at).Error()
	})
	if err != nil {
		if l.leads() && base != nil {
			l.office.enter(base, number)
		}
		return fmt.Errorf("hand the lead over: %w", err)
	}
	return nil
}

// led says whether anybody is known here to lead.
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

// outside says why no leader speaks to this coordinator, where that is because it is none of the members; empty: it is one, as
// far as is known here. One that did not run when it was removed hears of it from the others.
func (l *ledger) outside() string {
	if l.alone() {
		return ""
	}
	switch all := l.servers(); {
	case len(all) == 0:
		return "this coordinator is in no fleet yet: the first of peers begins the log, or another is asked to add it (lifeboat raft add)"
	case !slices.ContainsFunc(all, func(m raft.Server) bool { return m.ID == l.own }), l.disowned.Load() && !l.led():
		return "this coordinator was removed (lifeboat raft remove): stop it and have nobody ask it any more, or add it again (lifeboat raft add)"
	}
	return ""
}
