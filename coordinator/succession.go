package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A leader that dies with its machine costs the fleet an election. So a leader that knows that its machine goes (a notice, an order
// to leave) or that its disk fails hands the lead over before that, in milliseconds, to a coordinator whose machine stays.

const (
	// asidePace is how often a leader checks what heartbeats say of its machine. Decisions in the log wake it at once.
	asidePace = time.Second
	// asidePause is the least time between two checks, for a whole zone that leaves decides much; asideAgain that between two attempts to
	// hand over.
	asidePause = 50 * time.Millisecond
	asideAgain = 5 * time.Second

	// certificateLeft is the remaining life of its certificate at which a coordinator should lead no more. Once it has expired no new
	// connection succeeds, while the other coordinators, which are connected already, would let it lead on.
	certificateLeft = time.Minute
)

// succession knows whether this coordinator is fit to lead, and which of the others would lead instead.
type succession struct {
	cfg        Config
	version    string // of this build
	log        *slog.Logger
	ledger     *ledger
	leases     *leases
	colleagues *colleagues
	identity   *certs.Identity

	attendance attendance
	ahead      atomic.Int64              // how far this clock is ahead of the others', as lookAround found; nanoseconds
	went       atomic.Pointer[time.Time] // when this coordinator, as the leader, last saw its own machine leave; nil: it did not
}

// run hands the lead over whenever this coordinator is unfit to lead, until ctx ends. If no other coordinator is better off it leads
// on.
func (s *succession) run(ctx context.Context) error {
	look := time.NewTicker(asidePace)
	defer look.Stop()
	stays := false // leads on although unfit, and has logged that
	told := false  // that it cannot read the log
	for {
		news, turned := s.ledger.fsm.coming(), s.ledger.office.turned.Next()
		if err := s.ledger.fsm.trouble(); err != nil && !told {
			told = true
			s.log.Error("this coordinator cannot read what was decided, and should not lead", "err", err)
		}
		pause := asidePause
		if why := s.unfit(); why == "" {
			stays = false
		} else if _, err := s.ledger.lead(); err == nil {
			to, err := s.makeWay(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				stays = false
				s.log.Warn("leadership was handed over", "to", to, "because", why)
			case !stays:
				stays = true
				s.log.Warn("this coordinator is not fit to lead, and no other takes over", "because", why, "err", err)
			}
			pause = asideAgain
		}
		if !await.Sleep(ctx, pause) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-turned:
		case <-look.C:
		}
	}
}

// unfit says why another coordinator should lead rather than this one; empty: no reason.
func (s *succession) unfit() string {
	if err := s.ledger.fsm.trouble(); err != nil {
		return err.Error()
	}
	if err := s.ledger.store.Ill(); err != nil {
		return fmt.Sprintf("its log could not be written: %v", err)
	}
	if s.goes() {
		return "its machine is leaving"
	}
	if off := s.clockOff(); off != 0 {
		return fmt.Sprintf("its clock is %s ahead of the others': set it right", off.Round(time.Second))
	}
	if ends := s.identity.Expires(); time.Until(ends) < certificateLeft {
		return fmt.Sprintf("its certificate ends at %s, and nobody can connect to it then: put a new one there, and reload it", ends.UTC().Format(time.RFC3339))
	}
	return ""
}

// goes reports whether this coordinator's own machine leaves. A notice that only heartbeats carry is known to the leader alone. So a
// former leader goes by what it knew as the leader for one more lease: otherwise two coordinators under notice would send the lead
// back and forth.
func (s *succession) goes() bool {
	own, _ := s.cfg.own()
	goes := s.machineGoes(s.cfg.Node, own.Address)
	if term, _ := s.ledger.inOffice(); term != nil {
		if goes {
			now := time.Now()
			s.went.Store(&now)
		} else {
			s.went.Store(nil)
		}
		return goes
	}
	at := s.went.Load()
	return goes || at != nil && time.Since(*at) < s.cfg.Lease
}

// machineGoes reports whether the node of that name leaves or has left; without a name, a node whose peer address has the same host.
func (s *succession) machineGoes(name, address string) bool {
	host := machineOf(address)
	var there []registry.Node
	s.ledger.view(func(m *registry.Registry) {
		if name != "" {
			there = append(there, m.Nodes[name])
			return
		}
		if host == "" {
			return
		}
		for _, n := range m.Nodes {
			if machineOf(n.PeerAddress) == host {
				there = append(there, n)
			}
		}
	})
	var newest uint64
	for _, n := range there {
		newest = max(newest, n.RegisteredAt())
	}
	term, _ := s.ledger.inOffice() // a follower's leases are old: heartbeats go to the leader
	return slices.ContainsFunc(there, func(n registry.Node) bool {
		switch {
		case n.Leaving():
			return true
		case n.State == registry.Decommissioned:
			return n.RegisteredAt() == newest // else a later node is at the address: this machine under a new name, or another machine
		}
		if term == nil {
			return false
		}
		stance := s.leases.read(n.Name).status.GetNotice().GetStance()
		return n.State == registry.Active && (stance == "drain" || stance == "pre-copy")
	})
}

// machineOf is the host of an address in its canonical spelling; empty for loopback and unspecified addresses, which tell no machines apart.
func machineOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified()) {
		return ""
	}
	return hosts.Key(host)
}

// memberGoes reports whether another coordinator's machine leaves, by its own position or by what is known here.
func (s *succession) memberGoes(address string, said *api.Position) bool {
	return said.GetLeaving() || s.machineGoes("", address)
}

var errNoHeir = errors.New("no other coordinator answers whose machine stays")

// makeWay hands the lead to the coordinator that is furthest in the log among those whose machines stay.
func (s *succession) makeWay(ctx context.Context) (to string, err error) {
	heirs := s.heirs(ctx)
	if len(heirs) == 0 {
		return "", errNoHeir
	}
	var errs []error
	for _, to := range heirs {
		err := s.ledger.handOver(to)
		if err == nil {
			return to, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", to, err))
	}
	return "", errors.Join(errs...)
}

// heirs are the other coordinators that answer and whose machines stay, the furthest in the log first.
func (s *succession) heirs(ctx context.Context) (names []string) {
	said := s.colleagues.positions(ctx)
	for _, p := range s.colleagues.all() {
		if at := said[p.Name].Position; at != nil && !s.memberGoes(p.Address, at) {
			names = append(names, p.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(said[b].Applied, said[a].Applied), cmp.Compare(a, b))
	})
	return names
}
