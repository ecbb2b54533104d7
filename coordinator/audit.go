package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// Outcomes of what was asked for. Others say after a colon why it was refused, or how it failed.
const (
	outcomeDone  = "done"
	outcomeBegun = "begun" // by a leader that has yet to say how it ended
	refusedWord  = "refused: "
	failedWord   = "failed: "
)

const (
	keptAudit = 4096
	// namedInAudit bounds the nodes that a record names: ten thousand may be ordered away at once, and the events of a
	// record name them all.
	namedInAudit = 256
)

// asking is who asks for what, and why. It goes through the log with the command that it leads to.
type asking struct {
	Call    string            `json:"call"` // its name and what it says: one that is made again after a failover is the same
	Who     string            `json:"who"`
	From    string            `json:"from,omitempty"`
	Asked   string            `json:"asked"`
	Nodes   []string          `json:"nodes,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Detail  map[string]string `json:"detail,omitempty"`
	Outcome string            `json:"outcome,omitempty"` // empty in a command: what the machine makes of it
}

// by is who an event is owed to; empty: to no operator.
func (a *asking) by() string {
	if a == nil {
		return ""
	}
	return a.Who
}

// auditRecord is one thing that was asked for, and what became of it. Records are never changed once stored.
type auditRecord struct {
	Index uint64    `json:"index"`
	Time  time.Time `json:"time"`
	asking
	FirstEvent uint64 `json:"first_event,omitempty"`
	LastEvent  uint64 `json:"last_event,omitempty"`
}

// audit records what became of an operator's command, or what c says became of a thing that is no command. A call has one
// record: what repeats it adds none, and the end of a thing takes the place of its beginning.
func (m *machine) audit(c command, events []event, err error) {
	if c.Asked == nil {
		return
	}
	r := auditRecord{Index: m.LastAudit + 1, Time: c.At, asking: *c.Asked}
	switch {
	case err != nil:
		r.Outcome = shortened(refusedWord + err.Error())
	case c.Do == doRefuseHosts:
		r.Outcome = shortened(refusedWord + c.Reason)
	case r.Outcome == "":
		r.Outcome = outcomeDone
	}
	if len(events) > 0 {
		r.FirstEvent, r.LastEvent = events[0].Index, events[len(events)-1].Index
	}
	if len(r.Nodes) == 0 {
		r.asking = naming(r.asking, nodesOf(events))
	}
	if c.Hosts != nil {
		r.asking = detailed(r.asking, "include", c.Hosts.IncludeFile, "included", countIf(c.Hosts.Include != nil, len(c.Hosts.Include)),
			"exclude", c.Hosts.ExcludeFile, "excluded", countIf(c.Hosts.Exclude != nil, len(c.Hosts.Exclude)))
	}
	switch at := m.recordOf(c.Asked); {
	case at < 0:
	case m.Audit[at].Outcome == outcomeBegun:
		r.Index, r.Time = m.Audit[at].Index, m.Audit[at].Time
		m.Audit = slices.Clone(m.Audit) // a snapshot may be reading it
		m.Audit[at] = r
		return
	case m.Audit[at].Outcome == r.Outcome:
		return
	}
	m.LastAudit = r.Index
	if m.Audit = append(m.Audit, r); len(m.Audit) >= 2*keptAudit {
		m.Audit = slices.Clone(m.Audit[len(m.Audit)-keptAudit:])
	}
}

// decided says whether the very same was asked for in the same call, and done. Done again, it might undo what others have
// asked for since.
func (m *machine) decided(a *asking) bool {
	if a == nil {
		return false
	}
	at := m.recordOf(a)
	return at >= 0 && m.Audit[at].Outcome == outcomeDone
}

// recordOf finds the newest record of a call; -1: it has none.
func (m *machine) recordOf(a *asking) int {
	for i, r := range slices.Backward(m.Audit) {
		if r.Call == a.Call && r.Who == a.Who {
			return i
		}
	}
	return -1
}

// nodesOf are the nodes that events tell of, each once.
func nodesOf(events []event) (names []string) {
	for _, e := range events {
		if e.Node != "" {
			names = append(names, e.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// naming is a with as many of the nodes as are kept.
func naming(a asking, nodes []string) asking {
	if more := len(nodes) - namedInAudit; more > 0 {
		nodes = nodes[:namedInAudit:namedInAudit]
		a = detailed(a, "more_nodes", countIf(true, more))
	}
	a.Nodes = nodes
	return a
}

// detailed is a with more said of it, where there is something to say.
func detailed(a asking, data ...string) asking {
	if said := saying(data...); a.Detail == nil {
		a.Detail = said
	} else {
		a.Detail = maps.Clone(a.Detail)
		maps.Copy(a.Detail, said)
	}
	return a
}

// shortened is s as far as a record keeps it.
func shortened(s string) string { return shortenedTo(maxText, s) }

func shortenedTo(most int, s string) string {
	if s = strings.ToValidUTF8(s, "?"); len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

// auditSince are the records after an index, those of one node alone where it is named, the oldest first.
func (f *fleet) auditSince(after uint64, node string) (found []auditRecord) {
	var all []auditRecord
	f.ledger.view(func(m *machine) { all = m.Audit })
	for _, r := range all[max(0, len(all)-keptAudit):] {
		if r.Index > after && (node == "" || slices.Contains(r.Nodes, node)) {
			found = append(found, r)
		}
	}
	return found
}

func (r auditRecord) to() *api.AuditRecord {
	return &api.AuditRecord{
		Index: r.Index, Time: timestamppb.New(r.Time), Who: r.Who, From: r.From, Asked: r.Asked, Nodes: r.Nodes, Reason: r.Reason,
		Detail: r.Detail, Outcome: r.Outcome, FirstEvent: r.FirstEvent, LastEvent: r.LastEvent,
	}
}

// listAudit tells operators who asked for what: ?after=INDEX and ?node=NAME, as the verb has them.
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
		all = append(all, api.AuditToJSON(one.to()))
	}
	writeJSON(w, http.StatusOK, all)
}

// restored records that the machine begins anew with a snapshot.
func (m *machine) restored(by Restorer, savedAt, at time.Time) {
	m.Began = at
	if by == (Restorer{}) {
		return
	}
	a := detailed(asking{Call: "restore-" + stamp(at), Who: by.Who, Asked: "raft restore", Reason: shortened(by.Reason)}, "saved_at", stamp(savedAt))
	m.audit(command{At: at, Asked: &a}, nil, nil)
}
