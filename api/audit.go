package api

import "time"

// CallHeader is the metadata key of a call's id, which the client draws at random. A client whose coordinator no longer
// leads repeats the call at another one under the same id, so that the fleet does it, and records it, once.
const CallHeader = "lifeboat-call"

// AuditJSON is the audit record of one operator's call.
type AuditJSON struct {
	Index      uint64            `json:"index"`
	Time       *time.Time        `json:"time"`
	Who        string            `json:"who"`
	From       string            `json:"from"`
	Asked      string            `json:"asked"`
	Nodes      []string          `json:"nodes"`
	Reason     string            `json:"reason"`
	Detail     map[string]string `json:"detail"`
	Outcome    string            `json:"outcome"`
	FirstEvent uint64            `json:"first_event"` // 0: none
	LastEvent  uint64            `json:"last_event"`
}

// AuditToJSON converts an audit record. Nodes and detail are never null.
func AuditToJSON(r *AuditRecord) AuditJSON {
	detail := r.GetDetail()
	if detail == nil {
		detail = map[string]string{}
	}
	return AuditJSON{
		r.GetIndex(), Instant(r.GetTime()), r.GetWho(), r.GetFrom(), r.GetAsked(), append([]string{}, r.GetNodes()...), r.GetReason(),
		detail, r.GetOutcome(), r.GetFirstEvent(), r.GetLastEvent(),
	}
}
