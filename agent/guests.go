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

// guests are those who are connected to the peer address, and whose certificates are refused meanwhile: the coordinator tells when an
// operator revokes one, which ends the connections that it opened.
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

// mostOfOne is how many connections one name may have here: the executors of an app share one, and 1,024 connections take some 0.1 to 0.4 GB.
const mostOfOne = 1024

// enter says whether there is room for one more of that name.
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

// note is for an HTTP server, which closes the connections that it was handed.
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

// distrust takes the list of those who are refused, and returns the connections of such.
func (g *guests) distrust(all []*api.Revoked, id *certs.Identity) (theirs []*wire.Conn) {
	list := map[certs.Name]time.Time{}
	for _, r := range all {
		// No coordinator's can be revoked: one in the wrong hands would else have all others refused for good.
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

// distrust ends what those had open whose certificates were revoked. It does not block.
func (a *Agent) distrust(all []*api.Revoked) {
	theirs := a.guests.distrust(all, a.deps.Identity)
	a.log.Info("certificates were revoked, or are good again", "names", len(all), "connections", len(theirs))
	for _, conn := range theirs {
		_ = conn.Cut() // it is gone already, then
	}
}
