package api

import "time"

// CallHeader names a call in its metadata: one that is made again, because the coordinator that was asked led no more, is
// the same call. Whoever names it draws a name that nobody else has.
const CallHeader = "lifeboat-call"

// AuditJSON is one thing that somebody asked for.
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

// AuditToJSON makes a record whose nodes and detail are never null.
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
