package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// readPatience is how long reading the host files may take: they are small, so a disk that takes longer hangs.
const readPatience = 5 * time.Second

// hostFiles reads the configured files when an operator asks for it. The files count once their lists are in the log. A restart applies
// no edit of the files that no operator has asked to apply.
type hostFiles struct {
	log     *slog.Logger
	ledger  *ledger
	auditor *auditor
	refused prometheus.Counter
	timeout time.Duration // for nodes that the files have leave

	files   hosts.Files
	turn    chan struct{} // holds one while lists are read and decided: an older reading must not overtake a newer
	reading chan struct{} // holds one while a file is open: a reading that hangs is not begun a second time

	mu       sync.Mutex      // guards what follows
	stale    string          // why the lists in force are not those of the files, as of the last take-over or refresh; empty: they are
	shut     map[string]bool // nodes whose refusal was logged since the lists last changed
	maintain time.Time       // when the next maintenance ends
}

func newHostFiles(cfg Config, l *ledger, a *auditor, refused prometheus.Counter, log *slog.Logger) *hostFiles {
	return &hostFiles{
		log: log, ledger: l, auditor: a, refused: refused, timeout: cfg.DecommissionTimeout,
		files: cfg.Hosts, turn: make(chan struct{}, 1), reading: make(chan struct{}, 1), shut: map[string]bool{},
	}
}

func (h *hostFiles) configured() bool { return h.files != hosts.Files{} }

// take waits for a turn.
func (h *hostFiles) take(ctx context.Context) (release func(), err error) {
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// read reads both files, or fails after readPatience. A disk that hangs keeps the goroutine that reads, which nothing can end, but not the
// caller.
func (h *hostFiles) read(inForce *hosts.Lists) (*hosts.Lists, error) {
	hangs := func() error {
		return fmt.Errorf("%s: not read within %s: does its disk hang?", strings.Join(h.files.Paths(), ", "), readPatience)
	}
	patience := time.After(readPatience)
	select {
	case h.reading <- struct{}{}:
	case <-patience:
		return nil, hangs()
	}
	type outcome struct {
		lists *hosts.Lists
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-h.reading }()
		lists, err := hosts.Read(h.files, inForce)
		done <- outcome{lists, err}
	}()
	select {
	case o := <-done:
		return o.lists, o.err
	case <-patience:
		return nil, hangs()
	}
}

// inForce is the lists in force, from the log.
func (h *hostFiles) inForce() (is registry.HostsState) {
	h.ledger.view(func(m *registry.Registry) { is = m.Hosts })
	return is
}

// start brings the lists in line with the settings. Files whose lists are in force are only compared with them. Files that are new in
// the settings are applied, and the nodes that they exclude may drain. If no lists were ever in force and the files cannot be read,
// nothing says which nodes may join, and the coordinator does not start.
func (h *hostFiles) start() error {
	h.differ("") // another leader may have read them since
	was := h.inForce().Lists
	if !h.configured() {
		return h.startWithout(was)
	}
	known := was != nil && was.IncludeFile == h.files.Include && was.ExcludeFile == h.files.Exclude
	if was != nil && !known && !h.ledger.alone() {
		h.log.Warn("the settings name other host files than those that another leader read: give every coordinator the same",
			"files", strings.Join(h.files.Paths(), " "), "others", strings.Join(was.Paths(), " "))
	}
	lists, err := h.read(was)
	switch {
	case known && err != nil:
		h.heldBack(err.Error())
	case known && !lists.Equal(was):
		h.heldBack("the files have changed since they were read: lifeboat refresh-nodes applies them")
	case known:
	case err == nil:
		return h.apply(lists)
	case was == nil:
		return fmt.Errorf("host files: %w", err)
	default:
		return h.refuse(context.Background(), err)
	}
	return nil
}

// startWithout is start for settings that name no files. A coordinator on its own drops the lists. With several it is more likely that
// this one's settings are wrong: dropping the lists would let in all excluded nodes whenever it leads, so they stay in force.
func (h *hostFiles) startWithout(was *hosts.Lists) error {
	switch {
	case was == nil:
		return nil
	case h.ledger.alone(), was.Welcomes():
		return h.apply(nil)
	}
	h.heldBack("the settings of this coordinator name no host files, and the lists of " + strings.Join(was.Paths(), ", ") + " stay in force: give every coordinator the same")
	return nil
}

// heldBack notes and logs why the lists in force are not those of the configured files.
func (h *hostFiles) heldBack(why string) {
	h.differ(why)
	h.log.Warn("the host files are not in force", "err", why)
}

func (h *hostFiles) apply(lists *hosts.Lists) error {
	_, err := h.auditor.decide(context.Background(), registry.Command{Do: registry.DoHosts, Hosts: lists, Order: &registry.Order{Timeout: h.timeout}})
	return err
}

func (h *hostFiles) refuse(ctx context.Context, why error) error {
	_, err := h.auditor.decide(ctx, registry.Command{Do: registry.DoRefuseHosts, Reason: registry.Shortened(why.Error())})
	return err
}

func (h *hostFiles) differ(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = why
}

// changed drops notes that belong to the lists before.
func (h *hostFiles) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = ""
	clear(h.shut)
}

// refusedNews reports whether a node's refusal is to be logged: it is the first since the lists changed. The node asks again every few
// seconds.
func (h *hostFiles) refusedNews(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.shut[name]
	h.shut[name] = true
	return !was
}

// admit refuses the registration of an excluded node without a write to the log: such a node asks for ever.
func (h *hostFiles) admit(c registry.Command) error {
	var err error
	h.ledger.view(func(m *registry.Registry) { err = m.Refuses(c) })
	if !errors.Is(err, registry.ErrExcluded) && !errors.Is(err, registry.ErrDown) && !errors.Is(err, registry.ErrGone) {
		return nil
	}
	h.refused.Inc()
	if h.refusedNews(c.Nodes[0]) {
		h.log.Warn("a node may not join", "node", c.Nodes[0], "err", err)
	}
	return asStatus(err)
}

// maintained reports whether the host files have the node under maintenance: it stays, and takes no blocks.
func (h *hostFiles) maintained(n registry.Node, now time.Time) bool {
	return h.inForce().Lists.Maintained(n.Name, n.PeerAddress, now)
}

// maintenanceEnds reports whether any maintenance of the host files has ended since the last call.
func (h *hostFiles) maintenanceEnds(now time.Time) bool {
	var next time.Time
	if l := h.inForce().Lists; l != nil {
		for _, until := range l.Maintenance {
			if until.After(now) && (next.IsZero() || until.Before(next)) {
				next = until
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.maintain
	h.maintain = next
	return !was.IsZero() && !now.Before(was)
}

// RefreshNodes reads the host files and applies them in one decision for all nodes, so that nodes that are excluded together leave
// together.
func (s *operator) RefreshNodes(ctx context.Context, r *api.RefreshNodesRequest) (*api.RefreshNodesReply, error) {
	if err := checkSpan("timeout", r.Timeout); err != nil {
		return nil, err
	}
	if r.Timeout != nil && !r.Graceful {
		return nil, fault("a timeout of %s without graceful: who is forced has none", r.Timeout.AsDuration())
	}
	if !s.hosts.configured() {
		if trouble := s.hosts.shown().GetTrouble(); trouble != "" {
			return nil, status.Error(codes.FailedPrecondition, trouble)
		}
		return nil, status.Error(codes.FailedPrecondition, "there are no host files: set hosts.exclude or hosts.include in the coordinator's settings")
	}
	release, err := s.hosts.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	inForce := s.hosts.inForce()
	lists, err := s.hosts.read(inForce.Lists)
	if err != nil {
		if written := s.hosts.refuse(ctx, err); written != nil {
			s.log.Warn("the host files are refused, and that cannot be written to the log", "err", err)
		}
		return nil, status.Errorf(codes.FailedPrecondition, "refused: %v: the lists of %s stay in force", err, inForce.Since.Format(time.RFC3339))
	}
	timeout := s.cfg.DecommissionTimeout
	if r.Timeout != nil {
		timeout = max(r.Timeout.AsDuration(), hosts.Forever)
	}
	events, err := s.auditor.decide(ctx, registry.Command{Do: registry.DoHosts, Hosts: lists, Force: !r.Graceful, Order: &registry.Order{Timeout: timeout}})
	if err != nil {
		return nil, asStatus(err)
	}
	s.hosts.differ("")
	return &api.RefreshNodesReply{Hosts: s.hosts.shown(), Nodes: s.refreshed(events), Timeout: durationpb.New(timeout)}, nil
}

// actions are the words for what was done to a node, by the type of its event.
var actions = map[string]string{
	registry.EventDecommissioning: "decommission", registry.EventDecommissioned: "force",
	registry.EventShutdown: "shutdown", registry.EventDeadline: "timeout", registry.EventRecommissioned: "recommission",
}

// refreshed are the nodes that events tell of, and excluded nodes that were leaving before and still are.
func (s *operator) refreshed(events []registry.Event) []*api.RefreshedNode {
	lists := s.hosts.inForce().Lists
	did := map[string]string{}
	for _, e := range events {
		did[e.Node] = cmp.Or(actions[e.Type], did[e.Node])
	}
	var all []*api.RefreshedNode
	for _, n := range s.ledger.nodes() {
		if did[n.Name] != "" || n.Leaving() && lists.Judge(n.Name, n.PeerAddress).Excluded() {
			all = append(all, &api.RefreshedNode{Node: s.picture(n), Action: did[n.Name]})
		}
	}
	return all
}

// shown is the lists in force as the API has them; nil: there are none.
func (h *hostFiles) shown() *api.HostLists {
	is := h.inForce()
	if is.Lists == nil {
		return nil
	}
	out := &api.HostLists{
		IncludeFile: is.Lists.IncludeFile, ExcludeFile: is.Lists.ExcludeFile, Since: timestamppb.New(is.Since),
		Included: int64(len(is.Lists.Include)), Excluded: int64(len(is.Lists.Exclude)), Maintenance: int64(len(is.Lists.Maintenance)),
	}
	if is.Refused != nil {
		out.Trouble = "refused at " + is.Refused.At.Format(time.RFC3339) + ": " + is.Refused.Reason
		return out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Trouble = h.stale
	return out
}
