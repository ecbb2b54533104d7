package agent

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// guests are the open connections at the peer address, and the list of certificates that are refused. When an operator
// revokes a certificate the coordinator says so, and the agent closes the connections that were opened with it.
type guests struct {
	mu      sync.Mutex // guards what follows
	here    map[net.Conn]guest
	count   map[certs.Name]int
	revoked map[certs.Name]time.Time
}

type guest struct {
	conn *wire.Conn
	who  certs.Name
}

// mostOfOne is how many connections one name may have here. The executors of an app share one name; 1,024 connections take
// some 0.1 to 0.4 GB.
const mostOfOne = 1024

// enter adds a connection, unless its name has mostOfOne already.
func (g *guests) enter(conn *wire.Conn, who certs.Name) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count[who] == mostOfOne {
		return false
	}
	if g.here == nil {
		g.here, g.count = map[net.Conn]guest{}, map[certs.Name]int{}
	}
	g.here[conn] = guest{conn, who}
	g.count[who]++
	return true
}

func (g *guests) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is, known := g.here[conn]
	if !known {
		return
	}
	delete(g.here, conn)
	if g.count[is.who]--; g.count[is.who] == 0 {
		delete(g.count, is.who)
	}
}

// note is the ConnState hook of an HTTP server, which closes the connections that it was handed.
func (g *guests) note(conn net.Conn, is http.ConnState) {
	if is == http.StateClosed {
		g.leave(conn)
	}
}

func (g *guests) revokedAt(n certs.Name) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.revoked[n]
}

// distrust replaces the list of refused certificates, and returns the open connections that were made with one of them.
func (g *guests) distrust(all []*api.Revoked, id *certs.Identity) (theirs []*wire.Conn) {
	list := map[certs.Name]time.Time{}
	for _, r := range all {
		// A coordinator's certificate cannot be revoked here: whoever had stolen one could have all other coordinators
		// refused for good.
		if r.GetAt().IsValid() && r.GetRole() != string(certs.RoleCoordinator) {
			list[certs.Name{Role: certs.Role(r.GetRole()), Name: r.GetName()}] = r.GetAt().AsTime()
		}
	}
	g.mu.Lock()
	g.revoked = list
	here := slices.Collect(maps.Values(g.here))
	g.mu.Unlock()
	for _, is := range here {
		if id.Trusts(is.conn.ConnectionState()) != nil {
			theirs = append(theirs, is.conn)
		}
	}
	return theirs
}

// distrust closes the connections of those whose certificates were revoked. It does not block.
func (d *doors) distrust(all []*api.Revoked) {
	theirs := d.guests.distrust(all, d.identity)
	d.log.Info("certificates were revoked, or are good again", "names", len(all), "connections", len(theirs))
	for _, conn := range theirs {
		_ = conn.Cut() // an error means that it is gone already
	}
}
