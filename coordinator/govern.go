package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// govern follows elections until ctx ends. Whenever this coordinator is elected it takes over, and when it is the leader no more it
// stops answering for the fleet.
func (f *fleet) govern(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case leads := <-f.ledger.raft.LeaderCh():
			f.ledger.office.quit() // LeaderCh has only the newest change: there may have been another leader in between
			term := f.ledger.term()
			if !leads {
				f.log.Info("this coordinator leads no more")
				continue
			}
			if err := f.ledger.catchUp(); err != nil {
				if f.ledger.fsm.trouble() != nil {
					return err
				}
				f.log.Info("the lead was lost before it was taken", "err", err)
				continue
			}
			if f.succession.clockOff() != 0 { // by its clock every deadline would move
				if to, err := f.succession.makeWay(ctx); err == nil {
					f.log.Warn("leadership was handed over at once", "to", to, "because", f.succession.unfit())
					continue
				}
			}
			if err := f.takeOverSoon(ctx, term); err != nil && !errors.Is(err, errFollows) && !errors.Is(err, errDeposed) {
				return err
			}
		}
	}
}

// takeOverSoon takes over as soon as the log can be written. A disk that cannot be written is no reason to end the process: if it stays
// so, raft has another coordinator lead.
func (f *fleet) takeOverSoon(ctx context.Context, term uint64) error {
	for told := false; ; told = true {
		err := f.takeOver(ctx, term)
		if !errors.Is(err, errNoLog) {
			return err
		}
		if !told {
			f.log.Warn("this coordinator is elected, and does not lead before the log can be written", "err", err)
		}
		if !await.Sleep(ctx, raftstore.DiskPause) {
			return nil
		}
		if !f.ledger.leads() || f.ledger.term() != term {
			return errFollows
		}
	}
}

// takeOver begins to answer for the fleet; all that was decided must be applied. What only the last leader knew, from heartbeats and
// reports, the nodes say again. No node is LOST before this leader has waited a full lease for it.
func (f *fleet) takeOver(ctx context.Context, term uint64) error {
	now := time.Now()
	var names []string
	var refs []*registry.ManifestRef
	left := f.auditor.unsettled()
	f.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if n.State == registry.Active || n.Leaving() {
				names = append(names, name)
			}
		}
		refs = m.Manifests
	})
	f.leases.begin(names, now)
	f.silence.clear()
	f.locations.clear()
	f.lives.clear(now)
	f.roster.clear()
	f.accounts.begin(refs)
	if err := f.hosts.start(); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	f.bars.begin()
	f.ledger.fsm.hub.enter(cmp.Or(term, f.ledger.raft.CurrentTerm()))
	f.ledger.office.enter(context.WithoutCancel(ctx), term) // not ended by ctx: resign ends the term, so that calls under way can finish
	if !f.ledger.alone() {
		f.log.Info("this coordinator leads", "term", term, "nodes", len(names))
		f.succession.compareMembers()
	}
	f.auditor.settleFor(left)
	return nil
}

// resign hands the lead over before this coordinator stops: that takes milliseconds, an election hundreds of them.
func (s *succession) resign() {
	if s.ledger.alone() || !s.ledger.leads() {
		return
	}
	if err := s.handOver(context.Background(), ""); err != nil {
		s.log.Warn("this coordinator stops and cannot hand leadership over: the others hold an election", "err", err)
	}
}

// compareMembers warns when the peers in the settings are not the members that vote: the next person to read the file would be misled.
func (s *succession) compareMembers() {
	var members []string
	for _, m := range s.ledger.servers() {
		members = append(members, string(m.ID))
	}
	listed := namesOf(s.cfg.Peers)
	slices.Sort(members)
	slices.Sort(listed)
	if !slices.Equal(members, listed) {
		s.log.Warn("the members are not those in the settings: bring peers up to date, or use lifeboat raft add and remove",
			"members", strings.Join(members, " "), "peers", strings.Join(listed, " "))
	}
}
