package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Outcomes of what was asked for. Others say after a colon why it was refused, or how it failed.
const (
	OutcomeDone  = "done"
	OutcomeBegun = "begun" // by a leader that has yet to say how it ended
	RefusedWord  = "refused: "
	FailedWord   = "failed: "
)

const (
	KeptAudit = 4096

	// MaxText bounds what people say of a thing: reasons.
	MaxText = 1024

	// NamedInAudit bounds the nodes that a record names: ten thousand may be ordered away at once, and the events of a
	// record name them all.
	NamedInAudit = 256
)

// Asking is who asks for what, and why. It goes through the log with the command that it leads to.
type Asking struct {
	Call    string            `json:"call"` // its name and what it says: one that is made again after a failover is the same
	Who     string            `json:"who"`
	From    string            `json:"from,omitempty"`
	Asked   string            `json:"asked"`
	Nodes   []string          `json:"nodes,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Detail  map[string]string `json:"detail,omitempty"`
	Outcome string            `json:"outcome,omitempty"` // empty in a command: what the registry makes of it
}

// by is who an event is owed to; empty: to no operator.
func (a *Asking) by() string {
	if a == nil {
		return ""
	}
	return a.Who
}

// AuditRecord is one thing that was asked for, and what became of it. Records are never changed once stored.
type AuditRecord struct {
	Index uint64    `json:"index"`
	Time  time.Time `json:"time"`
	Asking
	FirstEvent uint64 `json:"first_event,omitempty"`
	LastEvent  uint64 `json:"last_event,omitempty"`
}

// audit records what became of an operator's command, or what c says became of a thing that is no command. A call has one
// record: what repeats it adds none, and the end of a thing takes the place of its beginning.
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

// decided says whether the very same was asked for in the same call, and done. Done again, it might undo what others have
// asked for since.
func (m *Registry) decided(a *Asking) bool {
	if a == nil {
		return false
	}
	at := m.RecordOf(a)
	return at >= 0 && m.Audit[at].Outcome == OutcomeDone
}

// RecordOf finds the newest record of a call; -1: it has none.
func (m *Registry) RecordOf(a *Asking) int {
	for i, r := range slices.Backward(m.Audit) {
		if r.Call == a.Call && r.Who == a.Who {
			return i
		}
	}
	return -1
}

// nodesOf are the nodes that events tell of, each once.
func nodesOf(events []Event) (names []string) {
	for _, e := range events {
		if e.Node != "" {
			names = append(names, e.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Naming is a with as many of the nodes as are kept.
func (a Asking) Naming(nodes []string) Asking {
	if more := len(nodes) - NamedInAudit; more > 0 {
		nodes = nodes[:NamedInAudit:NamedInAudit]
		a = a.Detailed("more_nodes", CountIf(true, more))
	}
	a.Nodes = nodes
	return a
}

// Detailed is a with more said of it, where there is something to say.
func (a Asking) Detailed(data ...string) Asking {
	if said := Saying(data...); a.Detail == nil {
		a.Detail = said
	} else {
		a.Detail = maps.Clone(a.Detail)
		maps.Copy(a.Detail, said)
	}
	return a
}

// Shortened is s as far as a record keeps it.
func Shortened(s string) string { return ShortenedTo(MaxText, s) }

// ShortenedTo is s, valid and of so many bytes at most.
func ShortenedTo(most int, s string) string {
	if s = strings.ToValidUTF8(s, "?"); len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

// Restored records that the registry begins anew with a snapshot.
func (m *Registry) Restored(who, reason string, savedAt, at time.Time) {
	m.Began = at
	if who == "" && reason == "" {
		return
	}
	a := Asking{Call: "restore-" + Stamp(at), Who: who, Asked: "raft restore", Reason: Shortened(reason)}.Detailed("saved_at", Stamp(savedAt))
	m.audit(Command{At: at, Asked: &a}, nil, nil)
}

// Words are what the log has of who asks for what: of which nodes, and what else was said, in the words of the audit.
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

// Message is r as operators are told it.
func (r AuditRecord) Message() *api.AuditRecord {
	return &api.AuditRecord{
		Index: r.Index, Time: timestamppb.New(r.Time), Who: r.Who, From: r.From, Asked: r.Asked, Nodes: r.Nodes, Reason: r.Reason,
		Detail: r.Detail, Outcome: r.Outcome, FirstEvent: r.FirstEvent, LastEvent: r.LastEvent,
	}
}

// namedInLog bounds the nodes that one line of the log names: the audit has more.
const namedInLog = 16
