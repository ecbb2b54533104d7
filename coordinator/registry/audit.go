package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Outcomes of an operator's call. The last two are prefixes: the reason follows.
const (
	OutcomeDone  = "done"
	OutcomeBegun = "begun" // the leader has yet to record how it ended
	RefusedWord  = "refused: "
	FailedWord   = "failed: "
)

const (
	KeptAudit = 4096

	// MaxText bounds the bytes of a reason or another text that people write.
	MaxText = 1024

	// NamedInAudit bounds the nodes that a record names. Ten thousand may be ordered away at once; the events that the record points to
	// name them all.
	NamedInAudit = 256
)

// Asking is an operator's call: who asks for what, and why. It goes through the log with the command that it leads to.
type Asking struct {
	Call    string            `json:"call"` // the caller's id for it, and a hash of the request: the same when it is repeated after a failover
	Who     string            `json:"who"`
	From    string            `json:"from,omitempty"`
	Asked   string            `json:"asked"`
	Nodes   []string          `json:"nodes,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Detail  map[string]string `json:"detail,omitempty"`
	Outcome string            `json:"outcome,omitempty"` // empty in a command: what the registry makes of it
}

// by names the operator who caused an event; empty: none did.
func (a *Asking) by() string {
	if a == nil {
		return ""
	}
	return a.Who
}

// AuditRecord is one operator's call and its outcome. Records are never changed once stored.
type AuditRecord struct {
	Index uint64    `json:"index"`
	Time  time.Time `json:"time"`
	Asking
	FirstEvent uint64 `json:"first_event,omitempty"`
	LastEvent  uint64 `json:"last_event,omitempty"`
}

// audit records the outcome of an operator's command; or, for a DoRecord command, the outcome that it carries of a call that led to no
// command. A call has one record: a repeated call adds none, and the record of how it ended takes the place of "begun".
func (m *Registry) audit(c Command, events []Event, err error) {
	if c.Asked == nil {
		return
	}
	r := AuditRecord{Index: m.LastAudit + 1, Time: c.At, Asking: *c.Asked}
	switch {
	case err != nil:
		r.Outcome = Shortened(RefusedWord + err.Error())
	case c.Do == DoRefuseHosts:
		r.Outcome = Shortened(RefusedWord + c.Reason)
	case r.Outcome == "":
		r.Outcome = OutcomeDone
	}
	if len(events) > 0 {
		r.FirstEvent, r.LastEvent = events[0].Index, events[len(events)-1].Index
	}
	if len(r.Nodes) == 0 {
		r.Asking = r.Asking.Naming(nodesOf(events))
	}
	if c.Hosts != nil {
		r.Asking = r.Asking.Detailed("include", c.Hosts.IncludeFile, "included", CountIf(c.Hosts.Include != nil, len(c.Hosts.Include)),
			"exclude", c.Hosts.ExcludeFile, "excluded", CountIf(c.Hosts.Exclude != nil, len(c.Hosts.Exclude)))
	}
	switch at := m.RecordOf(c.Asked); {
	case at < 0:
	case m.Audit[at].Outcome == OutcomeBegun:
		r.Index, r.Time = m.Audit[at].Index, m.Audit[at].Time
		m.Audit = slices.Clone(m.Audit) // a snapshot may be reading it
		m.Audit[at] = r
		return
	case m.Audit[at].Outcome == r.Outcome:
		return
	}
	m.LastAudit = r.Index
	if m.Audit = append(m.Audit, r); len(m.Audit) >= 2*KeptAudit {
		m.Audit = slices.Clone(m.Audit[len(m.Audit)-KeptAudit:])
	}
}

// decided reports whether this very call was made before, and done. A client repeats a call after a failover; done twice, the call might
// undo what other operators have asked for since.
func (m *Registry) decided(a *Asking) bool {
	if a == nil {
		return false
	}
	at := m.RecordOf(a)
	return at >= 0 && m.Audit[at].Outcome == OutcomeDone
}

// RecordOf returns the index in m.Audit of the newest record of a call; -1: there is none.
func (m *Registry) RecordOf(a *Asking) int {
	for i, r := range slices.Backward(m.Audit) {
		if r.Call == a.Call && r.Who == a.Who {
			return i
		}
	}
	return -1
}

// nodesOf are the nodes of some events, sorted, each once.
func nodesOf(events []Event) (names []string) {
	for _, e := range events {
		if e.Node != "" {
			names = append(names, e.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Naming is a with the first NamedInAudit of the nodes, and the number of the rest.
func (a Asking) Naming(nodes []string) Asking {
	if more := len(nodes) - NamedInAudit; more > 0 {
		nodes = nodes[:NamedInAudit:NamedInAudit]
		a = a.Detailed("more_nodes", CountIf(true, more))
	}
	a.Nodes = nodes
	return a
}

// Detailed is a with more details, keys and values in turn; empty values are left out.
func (a Asking) Detailed(data ...string) Asking {
	if said := Saying(data...); a.Detail == nil {
		a.Detail = said
	} else {
		a.Detail = maps.Clone(a.Detail)
		maps.Copy(a.Detail, said)
	}
	return a
}

// Shortened is s cut to MaxText bytes, as records keep it.
func Shortened(s string) string { return ShortenedTo(MaxText, s) }

// ShortenedTo is s as valid UTF-8 of at most so many bytes.
func ShortenedTo(most int, s string) string {
	if s = strings.ToValidUTF8(s, "?"); len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

// Restored records that the registry was restored from an operator's snapshot.
func (m *Registry) Restored(who, reason string, savedAt, at time.Time) {
	m.Began = at
	if who == "" && reason == "" {
		return
	}
	a := Asking{Call: "restore-" + Stamp(at), Who: who, Asked: "raft restore", Reason: Shortened(reason)}.Detailed("saved_at", Stamp(savedAt))
	m.audit(Command{At: at, Asked: &a}, nil, nil)
}

// Words are the keys and values of a log line about a: who, from where, what, which nodes, and the details of the audit.
func (a Asking) Words() []any {
	words := []any{"who", a.Who, "from", a.From, "asked", a.Asked, "nodes", len(a.Nodes)}
	if n := min(len(a.Nodes), namedInLog); n > 0 {
		words = append(words, "node", Shortened(strings.Join(a.Nodes[:n], " ")))
	}
	for _, what := range slices.Sorted(maps.Keys(a.Detail)) {
		words = append(words, what, a.Detail[what])
	}
	return words
}

// Message is r as the API sends it.
func (r AuditRecord) Message() *api.AuditRecord {
	return &api.AuditRecord{
		Index: r.Index, Time: timestamppb.New(r.Time), Who: r.Who, From: r.From, Asked: r.Asked, Nodes: r.Nodes, Reason: r.Reason,
		Detail: r.Detail, Outcome: r.Outcome, FirstEvent: r.FirstEvent, LastEvent: r.LastEvent,
	}
}

// namedInLog bounds the nodes that one log line names; the audit names more.
const namedInLog = 16
