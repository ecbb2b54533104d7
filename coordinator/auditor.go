package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// audited is a call that changes something, on its way through a handler. It is recorded once, in the same log entry as the decision
// if the call leads to one.
type audited struct {
	registry.Asking
	begun   bool // the log has a record that it began, and none of how it ended
	written bool // the log has a record
}

type auditedKey struct{}

// asks is what a call asks for, in the words of the command line; false: it changes nothing, and is not recorded.
func asks(method string, req any) (a registry.Asking, changes bool) {
	switch r := req.(type) {
	case *api.DecommissionRequest:
		a = registry.Asking{Asked: "decommission", Reason: r.Reason}.Naming(r.Nodes)
		if r.Drain {
			a.Asked = "drain"
		}
		return a.Detailed("timeout", spanOf(r.Timeout), "timeouts", registry.CountIf(len(r.Timeouts) > 0, len(r.Timeouts)), "leaving_only", registry.Yes(r.LeavingOnly), "mark_gone", registry.Yes(r.MarkGone)), true
	case *api.RecommissionRequest:
		return registry.Asking{Asked: "recommission", Reason: r.Reason}.Naming(r.Nodes), true
	case *api.DeactivateRequest:
		a = registry.Asking{Asked: "deactivate", Reason: r.Reason}
		if r.Undo {
			a.Asked = "reactivate"
		}
		return a.Naming(r.Nodes), true
	case *api.ForgetRequest:
		return registry.Asking{Asked: "forget", Reason: r.Reason}.Naming(r.Nodes), true
	case *api.ScheduleMaintenanceRequest:
		machines := 0
		for _, w := range r.Windows {
			machines += len(w.GetMachines())
		}
		a = registry.Asking{Asked: "maintenance schedule", Reason: r.Reason}
		return a.Detailed("windows", strconv.Itoa(len(r.Windows)), "machines", strconv.Itoa(machines), "add", registry.Yes(r.Add)), true
	case *api.ChangeMachinesRequest:
		a = registry.Asking{Asked: "maintenance down", Reason: r.Reason}
		if r.Up {
			a.Asked = "maintenance up"
		}
		var named []string
		for _, m := range r.Machines[:min(len(r.Machines), registry.NamedInAudit)] {
			named = append(named, scheduledFrom(m).String())
		}
		return a.Detailed("timeout", spanOf(r.Timeout), "machines", registry.Shortened(strings.Join(named, " ")), "more_machines", registry.CountIf(len(r.Machines) > len(named), len(r.Machines)-len(named))), true
	case *api.RefreshNodesRequest:
		return registry.Asking{Asked: "refresh-nodes", Reason: r.Reason}.Detailed("graceful", registry.Yes(r.Graceful), "timeout", spanOf(r.Timeout)), true
	case *api.ChangeMembersRequest:
		a = registry.Asking{Asked: "raft remove", Reason: r.Reason}
		var add []string
		for _, m := range r.Add[:min(len(r.Add), registry.NamedInAudit)] {
			a.Asked = "raft add"
			add = append(add, m.GetName()+"="+m.GetAddress())
		}
		remove := r.Remove[:min(len(r.Remove), registry.NamedInAudit)]
		return a.Detailed("add", registry.Shortened(strings.Join(add, " ")), "remove", registry.Shortened(strings.Join(remove, " "))), true
	case *api.TransferLeadershipRequest:
		return registry.Asking{Asked: "raft transfer", Reason: r.Reason}.Detailed("to", registry.Shortened(r.To)), true
	case *api.CreateTokenRequest:
		a = registry.Asking{Asked: "token create", Reason: r.Reason}
		return a.Detailed("role", registry.Shortened(r.Role), "name", registry.Shortened(r.Name), "uses", registry.CountIf(r.Uses != 0, int(r.Uses)), "life", spanOf(r.Life)), true
	case *api.RevokeTokenRequest:
		return registry.Asking{Asked: "token revoke", Reason: r.Reason}.Detailed("token", registry.Shortened(r.Id)), true
	case *api.RevokeRequest:
		a = registry.Asking{Asked: "revoke", Reason: r.Reason}
		if r.Undo {
			a.Asked = "revoke --undo"
		}
		return a.Detailed("certificates", registry.Shortened(r.Role+" "+r.Name)), true
	case *api.EndAppsRequest:
		a = registry.Asking{Asked: "apps end", Reason: r.Reason}
		if r.Undo {
			a.Asked = "apps end --undo"
		}
		named := r.Apps[:min(len(r.Apps), registry.NamedInAudit)]
		return a.Detailed("apps", registry.Shortened(strings.Join(named, " ")), "more_apps", registry.CountIf(len(r.Apps) > len(named), len(r.Apps)-len(named))), true
	case *api.ReleaseBrakeRequest:
		return registry.Asking{Asked: "brake release", Reason: r.Reason}, true
	}
	if method == api.Operator_SaveSnapshot_FullMethodName { // it changes nothing, but gives away all that the registry knows
		return registry.Asking{Asked: "raft snapshot"}, true
	}
	return registry.Asking{}, false
}

// spanOf is a span of time in words, and "" where none was given.
func spanOf(d *durationpb.Duration) string {
	switch {
	case d == nil:
		return ""
	case d.AsDuration() < 0:
		return "none"
	}
	return d.AsDuration().String()
}

// audited adds the call to the context if it is one to record.
func (g gate) audited(ctx context.Context, method string, req any) (context.Context, *audited) {
	said, changes := asks(method, req)
	if !changes {
		return ctx, nil
	}
	a := &audited{Asking: said}
	a.Reason = registry.Shortened(a.Reason)
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

// callOf is the id of a call: the caller's own id for it, and a hash of the request. So two requests under one id are two calls.
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

// auditor records in the log what operators ask for, together with what is decided on it.
type auditor struct {
	log    *slog.Logger
	ledger *ledger
	own    string // this coordinator's name
	do     decider
}

// decide decides a command. If ctx has an operator's call, its audit record is part of the same log entry.
func (au *auditor) decide(ctx context.Context, c registry.Command) ([]registry.Event, error) {
	a, _ := ctx.Value(auditedKey{}).(*audited)
	if a == nil {
		return au.do(c)
	}
	asked := a.Asking
	c.Asked = &asked
	events, err := au.do(c)
	if !undecided(err) {
		a.written, a.begun = true, a.Outcome == registry.OutcomeBegun
		outcome := cmp.Or(a.Outcome, registry.OutcomeDone)
		if err != nil {
			outcome = registry.RefusedWord + err.Error()
		}
		au.log.Info("an operator asked", append(a.Words(), "reason", a.Reason, "outcome", outcome)...)
	}
	return events, err
}

// undecided reports whether err leaves open that the command is not in the log.
func undecided(err error) bool {
	return errors.Is(err, errNoLog) || errors.Is(err, errFollows) || errors.Is(err, errDeposed)
}

// repeats reports whether the log has a record of this call already: the client made it before, to a leader that has begun it or done it.
func (au *auditor) repeats(ctx context.Context) (before bool) {
	if a, _ := ctx.Value(auditedKey{}).(*audited); a != nil {
		au.ledger.view(func(m *registry.Registry) { before = m.RecordOf(&a.Asking) >= 0 })
	}
	return before
}

// eachTime makes a call one that is decided each time that its client repeats it. id is of this time.
func eachTime(ctx context.Context, id string) {
	if a, _ := ctx.Value(auditedKey{}).(*audited); a != nil {
		a.Call += "-" + id
	}
}

// begin records that a call begins that is no command, such as a transfer of the lead: this leader may be gone before it can record how the
// call ended.
func (au *auditor) begin(ctx context.Context) error {
	a, _ := ctx.Value(auditedKey{}).(*audited)
	if a == nil {
		return nil
	}
	a.Outcome = registry.OutcomeBegun
	_, err := au.decide(ctx, registry.Command{Do: registry.DoRecord})
	return asStatus(err)
}

// settle records the outcome of a call that decide has not recorded, and returns the error for the caller.
func (au *auditor) settle(ctx context.Context, a *audited, err error) error {
	_, overtaken := errors.AsType[overtaken](err)
	switch {
	case a == nil || a.written && !a.begun:
		return err
	case !a.begun && (overtaken || undecided(err)): // nothing was decided here: the client repeats it at the next leader
		return err
	case !a.begun && status.Code(err) == codes.InvalidArgument: // nonsense is not recorded
		au.log.Info("an operator's call makes no sense", append(a.Words(), "err", err)...)
		return err
	}
	switch {
	case err == nil:
		a.Outcome = registry.OutcomeDone
	case a.begun:
		a.Outcome = registry.Shortened(registry.FailedWord + status.Convert(err).Message())
	default:
		a.Outcome = registry.Shortened(registry.RefusedWord + status.Convert(err).Message())
	}
	wasBegun := a.begun
	if _, unwritten := au.decide(ctx, registry.Command{Do: registry.DoRecord}); unwritten != nil && err == nil && !wasBegun {
		return asStatus(unwritten)
	}
	return err // if the record of a begun call failed, the next leader writes it (settleFor)
}

// unsettled are the calls that former leaders recorded as begun, without how they ended.
func (au *auditor) unsettled() (left []registry.Asking) {
	au.ledger.view(func(m *registry.Registry) {
		for _, r := range m.Audit {
			if r.Outcome == registry.OutcomeBegun {
				left = append(left, r.Asking)
			}
		}
	})
	return left
}

// settleFor records how calls of former leaders ended, as far as a new leader can know: a transfer of the lead is done, for here is the new
// leader.
func (au *auditor) settleFor(left []registry.Asking) {
	for _, a := range left {
		a.Outcome = registry.FailedWord + "not known how it ended: the leader stopped, or was replaced"
		if a.Asked == "raft transfer" {
			a.Outcome = registry.OutcomeDone
			a = a.Detailed("leader", au.own)
		}
		if _, err := au.do(registry.Command{Do: registry.DoRecord, Asked: &a}); err != nil {
			au.log.Warn("cannot write to the log how a former leader's work ended", "asked", a.Asked, "err", err)
			return
		}
	}
}

// since are the records after an index, oldest first; with a node, only those that name it.
func (au *auditor) since(after uint64, node string) (found []registry.AuditRecord) {
	var all []registry.AuditRecord
	au.ledger.view(func(m *registry.Registry) { all = m.Audit })
	for _, r := range all[max(0, len(all)-registry.KeptAudit):] {
		if r.Index > after && (node == "" || slices.Contains(r.Nodes, node)) {
			found = append(found, r)
		}
	}
	return found
}
