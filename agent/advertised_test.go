package agent

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// An agent may start while no name can be looked up, perhaps in the middle of a drain. It soon tells peers the address that
// leads out of this machine.
func TestAdvertisedWhileNamesCannotBeLookedUp(t *testing.T) {
	if localTowards(elsewhere[0]) == "" {
		t.Skip("this machine has no route to anywhere")
	}
	lookup := net.DefaultResolver
	defer func() { net.DefaultResolver = lookup }()
	// Package net keeps a channel with what it has read of /etc/resolv.conf. It must not belong to this bubble, or another
	// bubble dies of it.
	refuses := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}
	_, _ = refuses.LookupHost(t.Context(), "coordinator.example")
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	synctest.Test(t, func(t *testing.T) {
		peer, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		a := &Agent{log: slog.New(slog.DiscardHandler), cfg: Config{Coordinators: []string{"a.coordinator.example:7411", "b.coordinator.example:7411"}}}
		a.at.peer = peer
		began := time.Now()
		address, err := a.advertised()
		if took := time.Since(began); err != nil || took > 2*cloudTimeout {
			t.Fatalf("got %v after %s, want an address within %s", err, took, 2*cloudTimeout)
		}
		host, _, _ := net.SplitHostPort(address)
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
			t.Errorf("got %s, want one that peers may reach", address)
		}
	})
}

// A coordinator that runs beside the agent is reached at a loopback address, as is one whose name Debian's /etc/hosts gives
// the machine itself. Peers that were told such an address would reach themselves.
func TestAdvertisedBesideACoordinator(t *testing.T) {
	if localTowards(elsewhere[0]) == "" {
		t.Skip("this machine has no route to anywhere")
	}
	peer, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, coordinators := range [][]string{{"127.0.1.1:7411"}, {"127.0.1.1:7411", elsewhere[0]}, {"[::1]:7411"}} {
		a := &Agent{log: slog.New(slog.DiscardHandler), cfg: Config{Coordinators: coordinators}}
		a.at.peer = peer
		address, err := a.advertised()
		if err != nil {
			t.Fatal(err)
		}
		host, _, _ := net.SplitHostPort(address)
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
			t.Errorf("%v: got %s, want one that peers may reach", coordinators, address)
		}
	}
}
