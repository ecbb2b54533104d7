package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A leader that dies with its machine costs the fleet an election. One that knows that its machine goes (a notice, an order
// to leave) or that its disk fails hands the lead over before, in milliseconds, to whoever stays.

const (
	// asidePace is how soon a leader hears from heartbeats that its machine is under notice. What is decided it hears at once.
	asidePace = time.Second
	// asidePause is between two looks, when a whole zone leaves, and asideAgain between two attempts to hand over.
	asidePause = 50 * time.Millisecond
	asideAgain = 5 * time.Second

	// certificateLeft is what is left of a certificate whose coordinator should not lead: who comes anew could not connect to it
	// in a moment, while the other coordinators, which are connected, let it lead on.
	certificateLeft = time.Minute
)

// stepAside hands the lead over when this coordinator should not have it, until ctx ends. Where nobody is better off it stays.
func (f *fleet) stepAside(ctx context.Context) error {
	look := time.NewTicker(asidePace)
	defer look.Stop()
	stays := false // and has said so
	for {
		news, turned := f.ledger.fsm.coming(), f.ledger.office.turn()
		pause := asidePause
		if why := f.unfit(); why == "" {
			stays = false
		} else if _, err := f.ledger.lead(); err == nil {
			to, err := f.makeWay(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				stays = false
				f.log.Warn("leadership was handed over", "to", to, "because", why)
			case !stays:
				stays = true
				f.log.Warn("this coordinator is not fit to lead, and no other takes over", "because", why, "err", err)
			}
			pause = asideAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
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
func (f *fleet) unfit() string {
	if err := f.ledger.store.Ill(); err != nil {
		return fmt.Sprintf("its log could not be written: %v", err)
	}
	if f.goes() {
		return "its machine is leaving"
	}
	if off := f.clockOff(); off != 0 {
		return fmt.Sprintf("its clock is %s ahead of the others': set it right", off.Round(time.Second))
	}
	if ends := f.identity.Expires(); time.Until(ends) < certificateLeft {
		return fmt.Sprintf("its certificate ends at %s, and nobody can connect to it then: issue a new one, and restart it", ends.UTC().Format(time.RFC3339))
	}
	return ""
}

// goes says whether this coordinator's own machine leaves. A notice that only heartbeats tell of is known to the leader
// alone. So one that has led goes by what it knew then for another lease, or two that are under notice would send the lead
// back and forth.
func (f *fleet) goes() bool {
	own, _ := f.cfg.own()
	goes := f.machineGoes(f.cfg.Node, own.Address)
	if term, _ := f.ledger.inOffice(); term != nil {
		if goes {
			now := time.Now()
			f.went.Store(&now)
		} else {
			f.went.Store(nil)
		}
		return goes
	}
	at := f.went.Load()
	return goes || at != nil && time.Since(*at) < f.cfg.Lease
}

// machineGoes says whether the node that is named, or else the one whose peers find it at the same host, leaves or has left.
func (f *fleet) machineGoes(name, address string) bool {
	host := machineOf(address)
	var there []registry.Node
	f.ledger.view(func(m *registry.Registry) {
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
	term, _ := f.ledger.inOffice() // what a follower has from heartbeats is of another time
	return slices.ContainsFunc(there, func(n registry.Node) bool {
		switch {
		case n.Leaving():
			return true
		case n.State == registry.Decommissioned:
			return n.RegisteredAt() == newest // else another came after it: the machine under a new name, or another at its address
		}
		if term == nil {
			return false
		}
		stance := f.leases.read(n.Name).status.GetNotice().GetStance()
		return n.State == registry.Active && (stance == "drain" || stance == "pre-copy")
	})
}

// machineOf is the host of an address, in its one spelling; empty where it is no machine's own: loopback is everybody's.
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

// memberGoes says whether another coordinator's machine leaves, as it says itself or as is known here.
func (f *fleet) memberGoes(address string, said *api.Position) bool {
	return said.GetLeaving() || f.machineGoes("", address)
}

var errNoHeir = errors.New("no other coordinator answers whose machine stays")

// makeWay hands the lead to whoever is furthest in the log of those whose machines stay.
func (f *fleet) makeWay(ctx context.Context) (to string, err error) {
	heirs := f.heirs(ctx)
	if len(heirs) == 0 {
		return "", errNoHeir
	}
	var errs []error
	for _, to := range heirs {
		err := f.ledger.handOver(to)
		if err == nil {
			return to, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", to, err))
	}
	return "", errors.Join(errs...)
}

// heirs are the others that answer and whose machines stay, the furthest first.
func (f *fleet) heirs(ctx context.Context) (names []string) {
	said := f.colleagues.positions(ctx)
	for _, p := range f.colleagues.all() {
		if at := said[p.Name].Position; at != nil && !f.memberGoes(p.Address, at) {
			names = append(names, p.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(said[b].Applied, said[a].Applied), cmp.Compare(a, b))
	})
	return names
}
