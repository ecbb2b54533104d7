package coordinator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/lifeboat/lifeboat/api"
)

// pages is the address of this coordinator's pages: listen.http, or if that has no host of its own, the host of this coordinator's address
// in peers.
func (c *Config) pages() string {
	host, port, err := net.SplitHostPort(c.Listen.HTTP)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return c.Listen.HTTP
	}
	own, _ := c.own()
	if host, _, err = net.SplitHostPort(own.Address); err != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// turnAway redirects a reader to the leader's pages, or asks it to try again when no leader is known.
func (s *web) turnAway(w http.ResponseWriter, r *http.Request) {
	if at := s.leadersPages(r.Context()); at != "" {
		http.Redirect(w, r, "https://"+at+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("Retry-After", "1")
	if r.URL.Path == "/" {
		w.Header().Set("Refresh", "5") // a browser that is sent from leader to leader shows the page once there is one; programs do not heed it
	}
	refuseHTTP(w, http.StatusServiceUnavailable, s.whoLeads())
}

// leadersPages asks the leader for the address of its pages; empty: there is no leader, or it does not answer.
func (s *web) leadersPages(ctx context.Context) string {
	name, address := s.ledger.leader()
	if name == "" || name == s.cfg.Name {
		return ""
	}
	leader, err := s.colleagues.ask(Peer{Name: name, Address: address})
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, positionPatience)
	defer cancel()
	said, err := leader.GetPosition(ctx, &api.GetPositionRequest{})
	if err != nil {
		return ""
	}
	return said.HttpAddress
}

func (s *web) whoLeads() string {
	if name, address := s.ledger.leader(); name != "" && name != s.cfg.Name {
		return fmt.Sprintf("%s does not lead: %s (%s) does", s.cfg.Name, name, address)
	}
	if outside := s.ledger.outside(); outside != "" {
		return outside
	}
	return "there is no leader now: ask again in a second"
}
