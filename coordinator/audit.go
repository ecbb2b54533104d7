package coordinator

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// auditSince are the records after an index, oldest first; with a node, only those that name it.
func (f *fleet) auditSince(after uint64, node string) (found []registry.AuditRecord) {
	var all []registry.AuditRecord
	f.ledger.view(func(m *registry.Registry) { all = m.Audit })
	for _, r := range all[max(0, len(all)-registry.KeptAudit):] {
		if r.Index > after && (node == "" || slices.Contains(r.Nodes, node)) {
			found = append(found, r)
		}
	}
	return found
}

// listAudit serves the audit to operators, with ?after=INDEX and ?node=NAME as the command line has them.
func (s *web) listAudit(w http.ResponseWriter, r *http.Request) {
	if name, err := certs.PeerName(*r.TLS); err != nil || name.Role != certs.RoleOperator {
		refuseHTTP(w, http.StatusForbidden, fmt.Sprintf("%s may not read this: show an operator's certificate", name))
		return
	}
	after, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, "after must be the index of a record")
		return
	}
	all := []api.AuditJSON{}
	for _, one := range s.auditSince(after, r.URL.Query().Get("node")) {
		all = append(all, api.AuditToJSON(one.Message()))
	}
	writeJSON(w, http.StatusOK, all)
}
