package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// audited is a call that changes something, on its way through a handler. What it asks for is recorded once, with the
// decision where there is one.
type audited struct {
	asking
	begun   bool // there is a record that it began, and none of how it ended
	written bool // there is a record
}

type auditedKey struct{}

// asks is what a call asks for, in the words of the verbs; false: it changes nothing.
func asks(method string, req any) (a asking, changes bool) {
	switch r := req.(type) {
	case *api.DecommissionRequest:
		a = naming(asking{Asked: "decommission", Reason: r.Reason}, r.Nodes)
		if r.Drain {
			a.Asked = "drain"
		}
		if r.Timeout != nil {
			a = detailed(a, "timeout", spanOf(r.Timeout.AsDuration()))
		}
		return detailed(a, "timeouts", countIf(len(r.Timeouts) > 0, len(r.Timeouts)), "leaving_only", yes(r.LeavingOnly), "mark_gone", yes(r.MarkGone)), true
	case *api.RecommissionRequest:
		return naming(asking{Asked: "recommission", Reason: r.Reason}, r.Nodes), true
	case *api.DeactivateRequest:
		a = asking{Asked: "deactivate", Reason: r.Reason}
		if r.Undo {
			a.Asked = "reactivate"
		}
		return naming(a, r.Nodes), true
	case *api.ForgetRequest:
		return naming(asking{Asked: "forget", Reason: r.Reason}, r.Nodes), true
	case *api.ScheduleMaintenanceRequest:
		machines := 0
		for _, w := range r.Windows {
			machines += len(w.GetMachines())
		}
		a = asking{Asked: "maintenance schedule", Reason: r.Reason}
		return detailed(a, "windows", strconv.Itoa(len(r.Windows)), "machines", strconv.Itoa(machines), "add", yes(r.Add)), true
	case *api.ChangeMachinesRequest:
		a = asking{Asked: "maintenance down", Reason: r.Reason}
		if r.Up {
			a.Asked = "maintenance up"
		}
		if r.Timeout != nil {
			a = detailed(a, "timeout", spanOf(r.Timeout.AsDuration()))
		}
		var named []string
		for _, m := range r.Machines[:min(len(r.Machines), namedInAudit)] {
			named = append(named, scheduledFrom(m).String())
		}
		return detailed(a, "machines", shortened(strings.Join(named, " ")), "more_machines", countIf(len(r.Machines) > len(named), len(r.Machines)-len(named))), true
	case *api.RefreshNodesRequest:
		a = detailed(asking{Asked: "refresh-nodes", Reason: r.Reason}, "graceful", yes(r.Graceful))
		if r.Timeout != nil {
			a = detailed(a, "timeout", spanOf(r.Timeout.AsDuration()))
		}
		return a, true
	case *api.ChangeMembersRequest:
		a = asking{Asked: "raft remove", Reason: r.Reason}
		var add []string
		for _, m := range r.Add[:min(len(r.Add), namedInAudit)] {
			a.Asked = "raft add"
			add = append(add, m.GetName()+"="+m.GetAddress())
		}
		remove := r.Remove[:min(len(r.Remove), namedInAudit)]
		return detailed(a, "add", shortened(strings.Join(add, " ")), "remove", shortened(strings.Join(remove, " "))), true
	case *api.TransferLeadershipRequest:
		return detailed(asking{Asked: "raft transfer", Reason: r.Reason}, "to", shortened(r.To)), true
	case *api.CreateTokenRequest:
		a = detailed(asking{Asked: "token create", Reason: r.Reason}, "role", shortened(r.Role), "name", shortened(r.Name), "uses", countIf(r.Uses != 0, int(r.Uses)))
		if r.Life != nil {
			a = detailed(a, "life", spanOf(r.Life.AsDuration()))
		}
		return a, true
	case *api.RevokeTokenRequest:
		return detailed(asking{Asked: "token revoke", Reason: r.Reason}, "token", shortened(r.Id)), true
	case *api.RevokeRequest:
		a = asking{Asked: "revoke", Reason: r.Reason}
		if r.Undo {
			a.Asked = "revoke --undo"
		}
		return detailed(a, "certificates", shortened(r.Role+" "+r.Name)), true
	case *api.EndAppsRequest:
		a = asking{Asked: "apps end", Reason: r.Reason}
		if r.Undo {
			a.Asked = "apps end --undo"
		}
		named := r.Apps[:min(len(r.Apps), namedInAudit)]
		return detailed(a, "apps", shortened(strings.Join(named, " ")), "more_apps", countIf(len(r.Apps) > len(named), len(r.Apps)-len(named))), true
	case *api.ReleaseBrakeRequest:
		return asking{Asked: "brake release", Reason: r.Reason}, true
	}
	if method == api.Operator_SaveSnapshot_FullMethodName { // what is saved tells all there is to know
		return asking{Asked: "raft snapshot"}, true
	}
	return asking{}, false
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func spanOf(d time.Duration) string {
	if d < 0 {
		return "none"
	}
	return d.String()
}

// audited puts into a context who asks for what, if it is a thing to record.
func (g gate) audited(ctx context.Context, method string, req any) (context.Context, *audited) {
	said, changes := asks(method, req)
	if !changes {
		return ctx, nil
	}
	a := &audited{asking: said}
	a.Reason = shortened(a.Reason)
	if name, err := caller(ctx); err == nil {
		a.Who = string(name.Role) + ":" + name.Name
	}
	a.From = from(ctx)
	a.Call = callOf(ctx, method, req)
	return context.WithValue(ctx, auditedKey{}, a), a
}

// from is the host that a call came from.
func from(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
		return host
	}
	return p.Addr.String()
}

// callOf names a call by what its caller says of it and by what it asks for: one name for two things names two.
func callOf(ctx context.Context, method string, req any) string {
	said := metadata.ValueFromIncomingContext(ctx, api.CallHeader)
	if len(said) != 1 || said[0] == "" || checkWord("call", said[0], maxWord) != nil {
		said = []string{rand.Text()}
	}
	sum := fnv.New64a()
	sum.Write([]byte(method))
	if m, ok := req.(proto.Message); ok {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // it was unmarshalled a moment ago
		sum.Write(b)
	}
	return fmt.Sprintf("%s-%016x", said[0], sum.Sum64())
}

// decide decides a command for whoever calls; the record of it is part of the decision.
func (f *fleet) decide(ctx context.Context, c command) ([]event, error) {
	a, _ := ctx.Value(auditedKey{}).(*audited)
	if a == nil {
		return f.do(c)
	}
	asked := a.asking
	c.Asked = &asked
	events, err := f.do(c)
	if !undecided(err) {
		a.written, a.begun = true, a.Outcome == outcomeBegun
		outcome := cmp.Or(a.Outcome, outcomeDone)
		if err != nil {
			outcome = refusedWord + err.Error()
		}
		f.log.Info("an operator asked", append(a.words(), "reason", a.Reason, "outcome", outcome)...)
	}
	return events, err
}

// namedInLog bounds the nodes that one line of the log names: the audit has more.
const namedInLog = 16

// words are what the log has of who asks for what: of which nodes, and what else was said, in the words of the audit.
func (a asking) words() []any {
	words := []any{"who", a.Who, "from", a.From, "asked", a.Asked, "nodes", len(a.Nodes)}
	if n := min(len(a.Nodes), namedInLog); n > 0 {
		words = append(words, "node", shortened(strings.Join(a.Nodes[:n], " ")))
	}
	for _, what := range slices.Sorted(maps.Keys(a.Detail)) {
		words = append(words, what, a.Detail[what])
	}
	return words
}

// undecided says whether err tells that a command may not be in the log.
func undecided(err error) bool {
	return errors.Is(err, errNoLog) || errors.Is(err, errFollows) || errors.Is(err, errDeposed)
}

// repeats says whether a call was made before, to a leader that began what it asks for.
func (f *fleet) repeats(ctx context.Context) (before bool) {
	if a, _ := ctx.Value(auditedKey{}).(*audited); a != nil {
		f.ledger.view(func(m *machine) { before = m.recordOf(&a.asking) >= 0 })
	}
	return before
}

// begin records that something begins which is no command: whoever does it may not be there to say how it ended.
func (f *fleet) begin(ctx context.Context) error {
	a, _ := ctx.Value(auditedKey{}).(*audited)
	if a == nil {
		return nil
	}
	a.Outcome = outcomeBegun
	_, err := f.decide(ctx, command{Do: doRecord})
	return asStatus(err)
}

// settle records what became of a call, where the decision has not said it, and returns what the caller is told.
func (g gate) settle(ctx context.Context, a *audited, err error) error {
	_, overtaken := errors.AsType[overtaken](err)
	switch {
	case a == nil || a.written && !a.begun:
		return err
	case !a.begun && (overtaken || undecided(err)): // nothing was decided here: it is made again elsewhere
		return err
	case !a.begun && status.Code(err) == codes.InvalidArgument: // nonsense: nothing was asked for
		g.log.Info("an operator's call makes no sense", append(a.words(), "err", err)...)
		return err
	}
	switch {
	case err == nil:
		a.Outcome = outcomeDone
	case a.begun:
		a.Outcome = shortened(failedWord + status.Convert(err).Message())
	default:
		a.Outcome = shortened(refusedWord + status.Convert(err).Message())
	}
	wasBegun := a.begun
	if _, unwritten := g.decide(ctx, command{Do: doRecord}); unwritten != nil && err == nil && !wasBegun {
		return asStatus(unwritten)
	}
	return err // what began and ended under another leader is settled by that one
}

// unsettled is what former leaders began without having said how it ended.
func (f *fleet) unsettled() (left []asking) {
	f.ledger.view(func(m *machine) {
		for _, r := range m.Audit {
			if r.Outcome == outcomeBegun {
				left = append(left, r.asking)
			}
		}
	})
	return left
}

// settleFor writes down how what former leaders began has ended, as far as the next leader can know: whoever asked for a
// transfer has it.
func (f *fleet) settleFor(left []asking) {
	for _, a := range left {
		a.Outcome = failedWord + "not known how it ended: the leader stopped, or was replaced"
		if a.Asked == "raft transfer" {
			a.Outcome = outcomeDone
			a = detailed(a, "leader", f.cfg.Name)
		}
		if _, err := f.do(command{Do: doRecord, Asked: &a}); err != nil {
			f.log.Warn("how a former leader's work ended is not written down", "asked", a.Asked, "err", err)
			return
		}
	}
}

// A refused caller is told of once in a while, however often it asks, and no more callers than that are told apart.
const (
	denialsEvery = time.Minute
	denialsKept  = 1024
)

// denials counts calls that their callers may not make. They are told in this process's log and nowhere else: a stranger
// could push everything else out of what is kept.
type denials struct {
	mu   sync.Mutex // guards seen
	seen map[string]*denial
}

type denial struct {
	told  time.Time
	times int // since
}

// count notes one and says how many there were since they were last told of; 0: it is too soon to tell.
func (d *denials) count(what string, now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.seen[what]
	if one == nil {
		if d.seen == nil || len(d.seen) >= denialsKept {
			d.seen = map[string]*denial{}
		}
		one = &denial{}
		d.seen[what] = one
	}
	one.times++
	if now.Sub(one.told) < denialsEvery {
		return 0
	}
	times := one.times
	one.told, one.times = now, 0
	return times
}

// denied tells of a call that its caller may not make.
func (g gate) denied(ctx context.Context, method string, err error) error {
	who := "?"
	if name, unknown := caller(ctx); unknown == nil {
		who = name.String()
	}
	if times := g.denials.count(who+" "+method, time.Now()); times > 0 {
		g.log.Warn("a call was refused", "who", who, "from", from(ctx), "method", method, "times", times, "err", err)
	}
	return err
}

// ListAudit implements the operators' call.
func (s *operator) ListAudit(r *api.ListAuditRequest, stream grpc.ServerStreamingServer[api.ListAuditReply]) error {
	if err := checkWord("node", r.GetNode(), maxName); err != nil {
		return err
	}
	for batch := range slices.Chunk(s.auditSince(r.GetAfter(), r.GetNode()), auditBatch) {
		reply := &api.ListAuditReply{}
		for _, one := range batch {
			reply.Records = append(reply.Records, one.to())
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

// auditBatch keeps a message below gRPC's 4 MiB when every record names as many nodes as it may.
const auditBatch = 64
