package agent

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// One name must not take all the memory and file descriptors.
func TestConnectionsOfOneNameAreBounded(t *testing.T) {
	var g guests
	app, other := certs.Name{Role: certs.RoleApp, Name: "etl"}, certs.Name{Role: certs.RoleNode, Name: "etl"}
	first := &wire.Conn{}
	if !g.enter(first, app) {
		t.Fatal("the first is turned away")
	}
	for range mostOfOne - 1 {
		g.enter(&wire.Conn{}, app)
	}
	if g.enter(&wire.Conn{}, app) {
		t.Errorf("connection %d of one name is taken", mostOfOne+1)
	}
	if !g.enter(&wire.Conn{}, other) {
		t.Error("another name is turned away")
	}
	g.leave(first)
	g.leave(first)
	if !g.enter(first, app) || g.enter(&wire.Conn{}, app) {
		t.Error("one left: want room for one")
	}
}

// An agent that was told to refuse all coordinators would never hear that this was wrong.
func TestNoCoordinatorIsRefused(t *testing.T) {
	var g guests
	g.distrust([]*api.Revoked{
		{Role: string(certs.RoleCoordinator), Name: "c1", At: timestamppb.Now()}, {Role: string(certs.RoleNode), Name: "c1", At: timestamppb.Now()},
	}, certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}))
	if at := g.revokedAt(certs.Name{Role: certs.RoleCoordinator, Name: "c1"}); !at.IsZero() {
		t.Errorf("coordinator c1 is refused since %s", at)
	}
	if g.revokedAt(certs.Name{Role: certs.RoleNode, Name: "c1"}).IsZero() {
		t.Error("node c1 is not refused")
	}
}
