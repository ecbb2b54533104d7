package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/migration"
)

// leavingNodes observes leaving nodes as the coordinator knows them.
type leavingNodes struct {
	operator api.OperatorClient
	link     *link
	names    []string

	last     []*api.Node
	ids      map[string]string    // of the nodes as first seen: another machine may come under a name
	ended    map[string]*api.Node // nodes that have ended, as last seen
	timedOut map[string]bool
}

// askedEach is the most nodes that are asked about one by one. For more, one call lists the fleet: a call for each node would take longer
// than the pause between two looks.
const askedEach = 16

// list returns all nodes of the fleet by name if more than askedEach are waited for, else nil.
func (l *leavingNodes) list(ctx context.Context) (map[string]*api.Node, error) {
	if len(l.names) <= askedEach {
		return nil, nil
	}
	reply, err := l.operator.ListNodes(ctx, &api.ListNodesRequest{})
	all := map[string]*api.Node{}
	for _, n := range reply.GetNodes() {
		all[n.GetName()] = n
	}
	return all, err
}

func (l *leavingNodes) look(ctx context.Context) ([]leaving, error) {
	var seen []leaving
	var last []*api.Node
	if l.ids == nil {
		l.ids, l.ended, l.timedOut = map[string]string{}, map[string]*api.Node{}, map[string]bool{}
	}
	listed, err := l.list(ctx)
	if err != nil {
		return nil, l.link.away(fmt.Sprintf("wait for %d nodes", len(l.names)), err)
	}
	for _, name := range l.names {
		n, err := listed[name], error(nil)
		if n == nil {
			n, err = l.operator.GetNode(ctx, &api.GetNodeRequest{Node: name})
		}
		if was := l.ended[name]; was != nil && (status.Code(err) == codes.NotFound || err == nil && n.GetId() != was.GetId()) {
			n, err = was, nil // forgotten after it ended, or replaced, while others are still leaving
		}
		if err != nil {
			return nil, l.link.away("wait for "+name, err)
		}
		if n.GetSubState() == "TIMEOUT" { // remembered: DECOMMISSIONED, which follows, does not show it
			l.timedOut[name] = true
		}
		l.ids[name] = cmp.Or(l.ids[name], n.GetId())
		now := leavingNode(n, l.timedOut[name])
		if n.GetId() != l.ids[name] {
			now = leaving{node: name, line: replaced, gist: replaced, ended: true, verdict: exitIncomplete, why: replaced}
		} else if now.ended {
			l.ended[name] = n
		}
		last, seen = append(last, n), append(seen, now)
	}
	l.last = last
	return seen, nil
}

// away marks an error as errAway, which a wait retries, if nobody answered.
func (l *link) away(asked string, err error) error {
	code := status.Code(err)
	err = l.rpcError(asked, err)
	if code == codes.Unavailable || code == codes.DeadlineExceeded {
		return errAway{err}
	}
	return err
}

// heldUpBy says for each sub-state what a node waits for, where the node itself names nothing closer.
var heldUpBy = map[string]string{
	"WAIT_WORKLOAD": "its workloads",
	"WAIT_APP":      "its apps",
	"MIGRATING":     "its blocks",
	"READY":         "its farewell",
	"TIMEOUT":       "its farewell",
}

func leavingNode(n *api.Node, timedOut bool) leaving {
	out := leaving{node: n.GetName()}
	parts := []string{nodeState(n)}
	m := n.GetManifest()
	if n.GetState() == "DECOMMISSIONING" && n.GetRemaining() != nil {
		parts = append(parts, "deadline "+show.Left(n.GetRemaining())) // first: a narrow terminal cuts the line at its end
	}
	if n.GetStatus().GetDrain() != nil && n.GetState() != "ACTIVE" { // an ACTIVE node's drain was taken back: what it did not send is not lost
		parts = append(parts, drainLine(drainOf(n), departed(n) && m != nil))
	}
	switch n.GetState() {
	case "DECOMMISSIONING":
		what := heldUpBy[n.GetSubState()]
		if len(n.GetWaitsFor()) > 0 {
			what = show.Some(n.GetWaitsFor(), waitWidth)
		}
		out.gist = what
		if peer := missedPeer(n.GetStatus().GetDrain()); peer != "" && what == heldUpBy["MIGRATING"] {
			what, out.gist = peer, "a peer" // the gist names no peer: a change of peer is no news
		}
		if what != "" {
			parts = append(parts, "waits for "+what)
		}
	case "SHUTDOWN":
		out.gist = "waits for its return"
		parts = append(parts, out.gist)
	case "DECOMMISSIONED", "GONE":
		out.ended = true
		switch {
		case m.GetLost().GetBlocks() > 0:
			out.verdict, out.why, out.lost = exitIncomplete, lostOf(m), true
		case timedOut:
			out.verdict, out.why = exitIncomplete, "timed out"
		case len(m.GetUnfinished()) > 0:
			out.verdict, out.why = exitIncomplete, unfinishedOf(m)
		case m == nil: // no word about its blocks is not word that they are safe
			out.verdict, out.why = exitIncomplete, "ended without a manifest: what became of its blocks is not known"
		}
	case "LOST":
		out.ended, out.verdict, out.why = true, exitIncomplete, "it is LOST: what became of its blocks is not known, and an order waits for its return"
	case "ACTIVE":
		out.ended, out.verdict, out.why = true, exitFailed, "it is ACTIVE again: "+takenBack
	}
	if out.why != "" {
		parts = append(parts, out.why)
	}
	out.line, out.gist = strings.Join(parts, "  "), nodeState(n)+out.gist+out.why
	return out
}

// takenBack and replaced are why a wait ends although the drain did not.
const (
	takenBack = "the decommission was taken back"
	replaced  = "another machine has its name now: what became of its blocks is not known"
)

// waitWidth is how many columns of a line go to what a node waits for.
const waitWidth = 80

// selfPatience is how long the agent's socket may be silent: long enough for a restart of the agent. An agent that ended for good
// while its machine is up will not answer again.
const selfPatience = 30 * time.Second

// tellPatience is how long a wait that saw the drain end stays for the coordinator to get the manifest, if the coordinator answers:
// one of 0.9 million blocks took 2.9 s.
const tellPatience = 5 * time.Second

// leavingSelf observes this machine's drain as its own agent tells it.
type leavingSelf struct {
	agent    api.LocalClient
	link     *link
	incident string

	last  *api.AgentStatus
	ended time.Time // when the drain was first seen to have ended
}

func (l *leavingSelf) look(ctx context.Context) ([]leaving, error) {
	s, err := l.agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
	if err != nil {
		return nil, l.link.away("wait for this machine", err)
	}
	l.last = s
	if s.GetSidecar() {
		return []leaving{leavingSidecar(s, l.incident)}, nil
	}
	e := leavingAgent(s, l.incident)
	if l.ended.IsZero() && e.ended {
		l.ended = time.Now()
	}
	// A script that waited may ask the coordinator for the manifest next.
	if e.ended && e.verdict != exitFailed && !s.GetManifestTold() && s.GetCoordinatorTrouble() == "" && time.Since(l.ended) < tellPatience {
		e.ended = false
		e.line += "  waits for the coordinator to have the account"
		e.gist += "account"
	}
	return []leaving{e}, nil
}

// leavingSidecar ends when each action of the sidecar is done or has failed.
func leavingSidecar(s *api.AgentStatus, incident string) leaving {
	out := leaving{node: s.GetNode()}
	if s.GetStatus().GetNotice().GetIncident() != incident {
		return leaving{node: out.node, line: takenBack, gist: takenBack, ended: true, verdict: exitFailed, why: takenBack}
	}
	var waits, failed []string
	for _, a := range s.GetActions() {
		switch a.GetState() {
		case "done":
		case "failed":
			failed = append(failed, a.GetName())
		default:
			waits = append(waits, a.GetName())
		}
	}
	out.ended = len(waits) == 0
	if out.ended && len(failed) > 0 {
		out.verdict, out.why = exitIncomplete, "not told: "+strings.Join(failed, ", ")
	}
	out.line = fmt.Sprintf("%d of %d told", len(s.GetActions())-len(waits)-len(failed), len(s.GetActions()))
	if len(waits) > 0 {
		out.line += ", waits for " + strings.Join(waits, ", ")
	}
	out.gist = out.line
	return out
}

func leavingAgent(s *api.AgentStatus, incident string) leaving {
	out := leaving{node: s.GetNode()}
	notice, d, m := s.GetStatus().GetNotice(), s.GetStatus().GetDrain(), s.GetManifest()
	parts := []string{cmp.Or(d.GetPhase(), "about to drain")}
	// The drain has ended once its manifest is there, a moment after the last block. Before our drain begins, the end of an earlier one
	// may still show; its manifest is of another incident. The notice keeps our incident until the decommission is taken back.
	switch {
	case d.GetPhase() == "drained" && m.GetIncident() == incident:
		out.ended = true
		if m.GetLost().GetBlocks() > 0 {
			out.verdict, out.why, out.lost = exitIncomplete, lostOf(m), true
		} else if len(m.GetUnfinished()) > 0 {
			out.verdict, out.why = exitIncomplete, unfinishedOf(m)
		}
	case notice.GetIncident() != incident:
		return leaving{node: out.node, line: takenBack, gist: takenBack, ended: true, verdict: exitFailed, why: takenBack}
	}
	if !out.ended && notice.GetRemaining() != nil {
		parts = append(parts, "deadline "+show.Left(notice.GetRemaining()))
	}
	if d != nil {
		parts = append(parts, drainLine(d, d.GetPhase() == "drained" && m.GetIncident() == incident))
	}
	peer, waits := missedPeer(d), ""
	switch {
	case out.ended:
	case d.GetPhase() == "drained" && m == nil:
		parts = append(parts, "waits for its account")
	case d.GetPhase() != "sending":
		parts = append(parts, "waits for the list of its blocks")
	default:
		waits = show.Some(s.GetWaitsFor(), waitWidth)
		parts = append(parts, "waits for "+cmp.Or(waits, peer, heldUpBy["MIGRATING"]))
	}
	if out.why != "" {
		parts = append(parts, out.why)
	}
	out.line, out.gist = strings.Join(parts, "  "), fmt.Sprint(d.GetPhase(), waits, peer != "", out.why)
	return out
}

// missedPeer says what a drain waits for while no peer takes its blocks; empty: a peer does. It names the failing peer that took most
// blocks before, with its whole error: the cause stands at the end of that, and a terminal cuts the line itself.
func missedPeer(d *api.DrainProgress) string {
	well := func(p *api.PeerProgress) bool { return p.GetTrouble() == "" }
	switch {
	case d.GetPhase() != "sending", slices.ContainsFunc(d.GetPeers(), well):
		return ""
	case len(d.GetPeers()) == 0 && d.GetBlocksMoved()+d.GetBlocksLost() < d.GetBlocksTotal():
		return "a peer: none is known that has room"
	case len(d.GetPeers()) == 0:
		return ""
	}
	most := slices.MaxFunc(d.GetPeers(), func(a, b *api.PeerProgress) int { return cmp.Compare(a.GetBlocks(), b.GetBlocks()) })
	line := "a peer"
	if n := len(d.GetPeers()); n > 1 {
		line = fmt.Sprintf("a peer, %d are in trouble", n)
	}
	return fmt.Sprintf("%s: %s: %s", line, most.GetNode(), most.GetTrouble())
}

// scanning reports whether a drain still looks for blocks: its totals are what it has met so far. One that goes on after a
// restart begins with what was moved before, and would look as if all were done.
func scanning(d *api.DrainProgress) bool { return d.GetPhase() == string(migration.PhaseScanning) }

// movedOf is how many blocks have gone, for a column: 3/4, or 3/4+ while there may be more.
func movedOf(d *api.DrainProgress) string {
	of := fmt.Sprintf("%d/%d", d.GetBlocksMoved(), d.GetBlocksTotal())
	if scanning(d) {
		of += "+"
	}
	return of
}

// drainLine says how far a drain is and, once its scan is over, when it will be done at this pace. accounted: the manifest is there and
// says what was lost, so the line does not.
func drainLine(d *api.DrainProgress, accounted bool) string {
	line := fmt.Sprintf("%d/%d blocks  %s/%s", d.GetBlocksMoved(), d.GetBlocksTotal(), show.Size(d.GetBytesMoved()), show.Size(d.GetBytesTotal()))
	rate, rest := d.GetBytesPerSecond(), d.GetBytesTotal()-d.GetBytesMoved()
	if rate > 0 && rest > 0 {
		line += fmt.Sprintf("  %s/s", show.Size(rate))
	}
	switch {
	case scanning(d):
		line += "  looking for more"
	case rate > 0 && rest > 0:
		line += "  done in " + show.Span(time.Duration(float64(rest)/float64(rate)*float64(time.Second)))
	}
	if d.GetBlocksLost() > 0 && !accounted {
		line += fmt.Sprintf("  %d lost", d.GetBlocksLost())
	}
	return line
}

func lostOf(m *api.ManifestSummary) string {
	return fmt.Sprintf("%s (%s) lost", show.Count(m.GetLost().GetBlocks(), "block"), show.Size(m.GetLost().GetBytes()))
}

func unfinishedOf(m *api.ManifestSummary) string {
	return "time was up for " + strings.Join(m.GetUnfinished(), ", ")
}
