package coordinator

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// web is the coordinator over HTTP. Health and metrics are open to all; pages about nodes need a certificate.
type web struct {
	*fleet
	closing context.Context
}

func (s *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("GET /{$}", s.known(s.pageFile("index.html")))
	mux.HandleFunc("GET /page.css", s.known(s.pageFile("page.css")))
	mux.HandleFunc("GET /page.js", s.known(s.pageFile("page.js")))
	mux.HandleFunc("GET /nodes", s.known(s.listNodes))
	mux.HandleFunc("GET /nodes/{node}", s.known(s.getNode))
	mux.HandleFunc("GET /events", s.known(s.streamEvents))
	mux.HandleFunc("GET /audit", s.known(s.listAudit))
	mux.HandleFunc("GET /apps", s.known(s.listApps))
	mux.HandleFunc("POST /apps/{app}/beat", s.known(s.beatApp))
	mux.HandleFunc("POST /apps/{app}/over", s.known(s.overApp))
	mux.HandleFunc("POST /maintenance/schedule", s.known(s.postSchedule))
	mux.HandleFunc("GET /maintenance/schedule", s.known(s.getSchedule))
	mux.HandleFunc("GET /maintenance/status", s.known(s.getMaintenance))
	mux.HandleFunc("POST /machine/down", s.known(s.changeMachines(false)))
	mux.HandleFunc("POST /machine/up", s.known(s.changeMachines(true)))
	return http.NewCrossOriginProtection().Handler(mux) // another site's page in an operator's browser must not use the operator's certificate
}

// known lets through requests with a certificate of a node, an operator or an app, if this coordinator leads.
func (s *web) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			refuseHTTP(w, http.StatusUnauthorized, "show a certificate of a node, an operator or an app, such as curl --cert operator.pem --key operator.key; in a browser see what lifeboat web prints")
			return
		}
		name, err := certs.PeerName(*r.TLS)
		if err != nil || !slices.Contains([]certs.Role{certs.RoleNode, certs.RoleOperator, certs.RoleApp}, name.Role) {
			refuseHTTP(w, http.StatusForbidden, fmt.Sprintf("%s may not read this: show a certificate of a node, an operator or an app", name))
			return
		}
		if err := s.access.identity.Trusts(*r.TLS); err != nil {
			refuseHTTP(w, http.StatusUnauthorized, err.Error())
			return
		}
		if _, err := s.ledger.leadSoon(r.Context()); err != nil {
			s.turnAway(w, r)
			return
		}
		next(w, r)
	}
}

// ready answers whether asking this coordinator is of use: it leads, or knows who does.
func (s *web) ready(w http.ResponseWriter, _ *http.Request) {
	leader, _ := s.ledger.leader()
	outside := s.ledger.outside()
	switch {
	case s.ledger.fsm.trouble() != nil:
		refuseHTTP(w, http.StatusServiceUnavailable, s.ledger.fsm.trouble().Error())
	case s.ledger.alone() && (!s.ledger.leads() || s.ledger.store.Hangs() != nil), !s.ledger.alone() && s.ledger.store.Ill() != nil:
		refuseHTTP(w, http.StatusServiceUnavailable, "the log cannot be written now: look at the disk of data_dir")
	case leader == "" && outside != "":
		refuseHTTP(w, http.StatusServiceUnavailable, outside)
	case leader == "":
		refuseHTTP(w, http.StatusServiceUnavailable, "there is no leader: are more than half of the coordinators up, do they reach each other, and is this one a member (lifeboat raft members)?")
	default:
		io.WriteString(w, "ok\n")
	}
}

func (s *web) listNodes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Content-Type", "application/json")
	body := io.Writer(w)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		// With thousands of nodes the list is megabytes, and the web page asks for it again and again, perhaps from afar.
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
		defer packed.Close()
		body = packed
	}
	io.WriteString(body, "[")
	for i, n := range s.ledger.nodes() { // encoded one by one: all at once would take a hundred megabytes of memory
		one, err := json.Marshal(api.NodeToJSON(s.picture(n)))
		if err != nil {
			s.log.Error("a node cannot be written as JSON", "node", n.Name, "err", err)
			return // the reader gets a list without its end, which is no JSON
		}
		if i > 0 {
			io.WriteString(body, ",")
		}
		if _, err := body.Write(one); err != nil {
			return // the reader went away
		}
	}
	io.WriteString(body, "]\n")
}

func (s *web) getNode(w http.ResponseWriter, r *http.Request) {
	n, known := s.ledger.node(r.PathValue("node"))
	if !known {
		refuseHTTP(w, http.StatusNotFound, fmt.Sprintf("node %q is not known here: GET /nodes lists those that are", r.PathValue("node")))
		return
	}
	writeJSON(w, http.StatusOK, api.NodeToJSON(s.picture(n)))
}

// messageOf is what a call's refusal says, without its code.
func messageOf(err error) string { return status.Convert(err).Message() }

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // an error here is the reader's going away
}

func refuseHTTP(w http.ResponseWriter, code int, why string) {
	writeJSON(w, code, map[string]string{"error": why})
}
