package agent

import (
	"fmt"
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
	asking  map[certs.Name]chan struct{} // holds one for each question of that name that is being answered
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
		delete(g.asking, is.who)
	}
}

const (
	// mostQuestions is how many questions of one name are answered at a time; its others wait. One question may take 8 MB
	// (reading.MostAsked), and one name may have mostOfOne connections.
	mostQuestions = 8
	// questionPatience is how long a question may take to come, or to wait: far longer than those wait who ask (reading.ProbePatience).
	questionPatience = 30 * time.Second
)

// places bounds the questions of one name.
func (g *guests) places(who certs.Name) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking == nil {
		g.asking = map[certs.Name]chan struct{}{}
	}
	if g.asking[who] == nil {
		g.asking[who] = make(chan struct{}, mostQuestions)
	}
	return g.asking[who]
}

// question serves a request whose body is kept in memory. A thief of a node's key, or of an app's, would otherwise fill the memory with
// bodies that never end.
func (g *guests) question(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := guestOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		places, late := g.places(who), time.NewTimer(questionPatience)
		defer late.Stop()
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-late.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d questions of %s are being answered: ask again", mostQuestions, who), http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(questionPatience)) // an error means that there is no connection
		answer(w, r)
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
