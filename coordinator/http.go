package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

const (
	// A reader that takes nothing for this long is cut off.
	writePatience = 30 * time.Second
	// Proxies drop streams on which nothing happens; 15 s is what the HTML standard suggests (server-sent events, 9.2.7).
	eventComment = 15 * time.Second
)

// web is the coordinator over HTTP. Health and metrics are for everybody, what tells of nodes needs a certificate.
type web struct {
	*fleet
	closing context.Context
}

func (s *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("GET /nodes", s.known(s.listNodes))
	mux.HandleFunc("GET /nodes/{node}", s.known(s.getNode))
	mux.HandleFunc("GET /events", s.known(s.streamEvents))
	return mux
}

// known lets through who showed a certificate of a node, an operator or an app.
func (s *web) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			refuseHTTP(w, http.StatusUnauthorized, "show a certificate of a node, an operator or an app, such as curl --cert operator.pem --key operator.key")
			return
		}
		name, err := certs.PeerName(*r.TLS)
		if err != nil || !slices.Contains([]certs.Role{certs.RoleNode, certs.RoleOperator, certs.RoleApp}, name.Role) {
			refuseHTTP(w, http.StatusForbidden, fmt.Sprintf("%s may not read this: show a certificate of a node, an operator or an app", name))
			return
		}
		if _, err := s.ledger.lead(); err != nil {
			refuseHTTP(w, http.StatusServiceUnavailable, s.whoLeads())
			return
		}
		next(w, r)
	}
}

// ready says whether it is of use to ask: here, or the leader that is known here.
func (s *web) ready(w http.ResponseWriter, _ *http.Request) {
	leader, _ := s.ledger.leader()
	switch {
	case s.ledger.alone() && !s.ledger.leads():
		refuseHTTP(w, http.StatusServiceUnavailable, "the log cannot be written now: look at the disk of data_dir")
	case leader == "":
		refuseHTTP(w, http.StatusServiceUnavailable, "there is no leader: are more than half of the coordinators up, and do they reach each other?")
	default:
		io.WriteString(w, "ok\n")
	}
}

func (s *web) whoLeads() string {
	if name, address := s.ledger.leader(); name != "" && name != s.cfg.Name {
		return fmt.Sprintf("%s does not lead: %s (%s) does", s.cfg.Name, name, address)
	}
	return "there is no leader now: ask again in a second"
}

func (s *web) listNodes(w http.ResponseWriter, _ *http.Request) {
	all := []api.NodeJSON{}
	for _, n := range s.nodes() {
		all = append(all, api.NodeToJSON(s.picture(n), time.Now()))
	}
	writeJSON(w, http.StatusOK, all)
}

func (s *web) getNode(w http.ResponseWriter, r *http.Request) {
	n, known := s.node(r.PathValue("node"))
	if !known {
		refuseHTTP(w, http.StatusNotFound, fmt.Sprintf("node %q is not known here: GET /nodes lists those that are", r.PathValue("node")))
		return
	}
	writeJSON(w, http.StatusOK, api.NodeToJSON(s.picture(n), time.Now()))
}

// streamEvents sends what happened after ?after=INDEX (or Last-Event-ID, which browsers send when they come back), then
// what happens.
func (s *web) streamEvents(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(firstWord(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, "after must be the index of an event")
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	term, err := s.ledger.lead()
	if err != nil {
		refuseHTTP(w, http.StatusServiceUnavailable, s.whoLeads())
		return
	}
	defer context.AfterFunc(term, cancel)() // the next leader goes on after the last index

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	put := func(format string, args ...any) error {
		if err := control.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
		return control.Flush()
	}
	if put(": events follow\n\n") != nil {
		return
	}
	for ctx.Err() == nil {
		// Following in turns of bounded length leaves a gap for the comment, without a second writer.
		turn, end := context.WithTimeout(ctx, eventComment)
		err := s.follow(turn, after, true, func(e event) error {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			after = e.Index
			return put("id: %d\nevent: %s\ndata: %s\n\n", e.Index, e.Type, data)
		})
		end()
		if err != nil || ctx.Err() == nil && put(":\n\n") != nil {
			return
		}
	}
}

func firstWord(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // an error here is the reader's going away
}

func refuseHTTP(w http.ResponseWriter, code int, why string) {
	writeJSON(w, code, map[string]string{"error": why})
}
