package coordinator

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

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
	writeJSON(w, http.StatusOK, api.ListToJSON(s.auditor.since(after, r.URL.Query().Get("node")), func(one registry.AuditRecord) api.AuditJSON {
		return api.AuditToJSON(one.Message())
	}))
}

// ListAudit implements the operators' call.
func (s *operator) ListAudit(r *api.ListAuditRequest, stream grpc.ServerStreamingServer[api.ListAuditReply]) error {
	if err := checkWord("node", r.GetNode(), maxName); err != nil {
		return err
	}
	for batch := range slices.Chunk(s.auditor.since(r.GetAfter(), r.GetNode()), auditBatch) {
		reply := &api.ListAuditReply{}
		for _, one := range batch {
			reply.Records = append(reply.Records, one.Message())
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

// auditBatch keeps a message below gRPC's 4 MiB when every record names as many nodes as it may.
const auditBatch = 64
