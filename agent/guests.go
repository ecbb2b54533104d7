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
	"github.com/lifeboat/lifeboat/migration"
)

// guests are those who are connected to the peer address, and whose certificates are refused meanwhile: the coordinator tells when an
// operator revokes one, which ends the connections that it opened.
type guests struct {
	mu      sync.Mutex // guards what follows
	here    map[net.Conn]*migration.Conn
	revoked map[certs.Name]time.Time
}

func (g *guests) enter(conn *migration.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.here == nil {
		g.here = map[net.Conn]*migration.Conn{}
	}
	g.here[conn] = conn
}

func (g *guests) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.here, conn)
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
func (g *guests) distrust(all []*api.Revoked, id *certs.Identity) (theirs []*migration.Conn) {
	list := map[certs.Name]time.Time{}
	for _, r := range all {
		if r.GetAt().IsValid() {
			list[certs.Name{Role: certs.Role(r.GetRole()), Name: r.GetName()}] = r.GetAt().AsTime()
		}
	}
	g.mu.Lock()
	g.revoked = list
	here := slices.Collect(maps.Values(g.here))
	g.mu.Unlock()
	return slices.DeleteFunc(here, func(conn *migration.Conn) bool { return id.Trusts(conn.ConnectionState()) == nil })
}

// distrust ends what those had open whose certificates were revoked. It does not block.
func (a *Agent) distrust(all []*api.Revoked) {
	theirs := a.guests.distrust(all, a.deps.Identity)
	a.log.Info("certificates were revoked, or are good again", "names", len(all), "connections", len(theirs))
	for _, conn := range theirs {
		_ = conn.Cut() // it is gone already, then
	}
}
