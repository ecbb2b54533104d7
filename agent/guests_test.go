package agent

import (
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// One name may not have all the memory and file descriptors that there are for others.
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
