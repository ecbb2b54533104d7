package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// leaving is what one look at a node that leaves showed.
type leaving struct {
	node  string
	line  string // progress, for people
	ended bool
	// Once ended: the exit code that tells it, and why when that is not "done".
	verdict int
	why     string
}

// errAway says that a look failed in a way that may pass.
type errAway struct{ error }

func (e errAway) Unwrap() error { return e.error }

// waiter shows progress on stderr until every node has ended.
type waiter struct {
	stderr   io.Writer
	width    func() int // of the terminal on stderr; 0: it is none
	whom     string
	undo     string        // the command that would take the decommission back
	patience time.Duration // how long the one who is asked may be away; 0: for ever
	lines    int           // on the terminal, to be drawn over
}

func newWaiter(stderr io.Writer, whom, undo string) *waiter {
	return &waiter{stderr: stderr, width: func() int { return terminalWidth(stderr) }, whom: whom, undo: undo}
}

// run looks each second. A look that fails with errAway is looked at again, said once a streak.
func (w *waiter) run(ctx context.Context, look func(context.Context) ([]leaving, error)) ([]leaving, error) {
	var awaySince time.Time
	for {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		nodes, err := look(ask)
		cancel()
		away, passing := errors.AsType[errAway](err)
		switch {
		case ctx.Err() != nil:
			return nil, w.detach()
		case err == nil:
			awaySince = time.Time{}
			w.draw(nodes)
			if allEnded(nodes) {
				return nodes, nil
			}
		case !passing:
			return nil, err
		case awaySince.IsZero():
			awaySince = time.Now()
			w.say("waiting on: " + away.Error())
		case w.patience > 0 && time.Since(awaySince) >= w.patience:
			return nil, fmt.Errorf("gave up waiting after %s: %w", span(w.patience), away)
		}
		if !sleep(ctx, watchPace) {
			return nil, w.detach()
		}
	}
}

func allEnded(nodes []leaving) bool {
	for _, n := range nodes {
		if !n.ended {
			return false
		}
	}
	return true
}

func (w *waiter) draw(nodes []leaving) {
	width := w.width()
	if width > 0 && w.lines > 0 {
		fmt.Fprintf(w.stderr, "\x1b[%dA\x1b[J", w.lines) // ECMA-48: CUU, ED
	}
	w.lines = len(nodes)
	for _, n := range nodes {
		line := plain(n.node + "  " + n.line)
		if width > 0 {
			line = cut(line, width) // one that wraps would not be drawn over whole
		}
		fmt.Fprintln(w.stderr, line)
	}
}

func (w *waiter) say(line string) {
	w.lines = 0
	fmt.Fprintln(w.stderr, plain(line))
}

func (w *waiter) detach() error {
	return fmt.Errorf("detached: the decommission of %s goes on; `%s` would take it back", w.whom, w.undo)
}

// leavingNodes looks through the coordinator's eyes.
type leavingNodes struct {
	operator api.OperatorClient
	link     *link
	names    []string

	last     []*api.Node
	timedOut map[string]bool
}

func (l *leavingNodes) look(ctx context.Context) ([]leaving, error) {
	var seen []leaving
	var last []*api.Node
	for _, name := range l.names {
		n, err := l.operator.GetNode(ctx, &api.GetNodeRequest{Node: name})
		if err != nil {
			return nil, l.link.away("wait for "+name, err)
		}
		if n.GetSubState() == "TIMEOUT" { // the sub-state passes, that it was there does not
			if l.timedOut == nil {
				l.timedOut = map[string]bool{}
			}
			l.timedOut[name] = true
		}
		last = append(last, n)
		seen = append(seen, leavingNode(n, l.timedOut[name]))
	}
	l.last = last
	return seen, nil
}

// away marks what may pass: nobody answered.
func (l *link) away(asked string, err error) error {
	code := status.Code(err)
	err = l.rpcError(asked, err)
	if code == codes.Unavailable || code == codes.DeadlineExceeded {
		return errAway{err}
	}
	return err
}

// waitsFor says, for each sub-state, what it is that a node is held up by.
var waitsFor = map[string]string{
	"WAIT_WORKLOAD": "its workloads",
	"WAIT_APP":      "its apps",
	"MIGRATING":     "its blocks",
	"READY":         "its farewell",
	"TIMEOUT":       "its farewell",
}

func leavingNode(n *api.Node, timedOut bool) leaving {
	out := leaving{node: n.GetName()}
	parts := []string{nodeState(n)}
	if d := n.GetStatus().GetDrain(); d != nil {
		parts = append(parts, drainLine(d))
	}
	m := n.GetManifest()
	switch n.GetState() {
	case "DECOMMISSIONING":
		if n.GetRemaining() != nil {
			parts = append(parts, "deadline "+left(n.GetRemaining()))
		}
		if what := waitsFor[n.GetSubState()]; what != "" {
			parts = append(parts, "waits for "+what)
		}
	case "DECOMMISSIONED":
		out.ended = true
		switch {
		case m.GetLost().GetBlocks() > 0:
			out.verdict, out.why = exitIncomplete, lostOf(m)
		case timedOut:
			out.verdict, out.why = exitIncomplete, "timed out"
		case m == nil: // no word about its blocks is not word that they are safe
			out.verdict, out.why = exitIncomplete, "ended without a manifest: what became of its blocks is not known"
		}
	case "LOST", "GONE":
		out.ended, out.verdict, out.why = true, exitIncomplete, "it fell silent before it was done: state "+n.GetState()
	case "ACTIVE":
		out.ended, out.verdict, out.why = true, exitFailed, "it is ACTIVE again: the decommission was taken back"
	}
	if out.why != "" {
		parts = append(parts, out.why)
	}
	out.line = strings.Join(parts, "  ")
	return out
}

// selfPatience is how long the agent's socket may be silent: a restart of the agent, and no more. One that has ended
// with its machine still up will not speak again.
const selfPatience = 30 * time.Second

// leavingSelf looks through the eyes of the agent of this machine.
type leavingSelf struct {
	agent    api.LocalClient
	link     *link
	incident string

	last *api.AgentStatus
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
	return []leaving{leavingAgent(s, l.incident)}, nil
}

// leavingSidecar ends when everybody whom the sidecar tells has been told, or cannot be.
func leavingSidecar(s *api.AgentStatus, incident string) leaving {
	out := leaving{node: s.GetNode()}
	if s.GetStatus().GetNotice().GetIncident() != incident {
		out.ended, out.verdict, out.why = true, exitFailed, "the decommission was taken back"
		return out
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
	return out
}

func leavingAgent(s *api.AgentStatus, incident string) leaving {
	out := leaving{node: s.GetNode()}
	notice, d, m := s.GetStatus().GetNotice(), s.GetStatus().GetDrain(), s.GetManifest()
	var parts []string
	if d == nil {
		parts = append(parts, "about to drain")
	} else {
		parts = append(parts, d.GetPhase(), drainLine(d))
	}
	// An earlier drain's end may still show until ours has begun: it carries another incident.
	switch d.GetPhase() {
	case "drained":
		out.ended = m == nil || m.GetIncident() == "" || m.GetIncident() == incident
		if out.ended && max(d.GetBlocksLost(), m.GetLost().GetBlocks()) > 0 {
			out.verdict, out.why = exitIncomplete, count(d.GetBlocksLost(), "block")+" lost"
			if m != nil {
				out.why = lostOf(m)
			}
		}
	case "cancelled":
		if notice == nil || notice.GetIncident() != incident {
			out.ended, out.verdict, out.why = true, exitFailed, "the decommission was taken back"
		}
	}
	if !out.ended && notice.GetRemaining() != nil {
		parts = append(parts, "deadline "+left(notice.GetRemaining()))
	}
	switch {
	case out.ended:
	case d.GetPhase() == "sending":
		parts = append(parts, "waits for its blocks")
	default:
		parts = append(parts, "waits for the list of its blocks")
	}
	if out.why != "" {
		parts = append(parts, out.why)
	}
	out.line = strings.Join(parts, "  ")
	return out
}

// drainLine is how far a drain is, and when it would be done at this pace.
func drainLine(d *api.DrainProgress) string {
	line := fmt.Sprintf("%d/%d blocks  %s/%s", d.GetBlocksMoved(), d.GetBlocksTotal(), size(d.GetBytesMoved()), size(d.GetBytesTotal()))
	if rate := d.GetBytesPerSecond(); rate > 0 && d.GetBytesMoved() < d.GetBytesTotal() {
		eta := time.Duration(float64(d.GetBytesTotal()-d.GetBytesMoved()) / float64(rate) * float64(time.Second))
		line += fmt.Sprintf("  %s/s  done in %s", size(rate), span(eta))
	}
	if d.GetBlocksLost() > 0 {
		line += fmt.Sprintf("  %d lost", d.GetBlocksLost())
	}
	return line
}

func lostOf(m *api.ManifestSummary) string {
	return fmt.Sprintf("%s (%s) lost", count(m.GetLost().GetBlocks(), "block"), size(m.GetLost().GetBytes()))
}
