package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// readPatience is how long host files may take to be read: they are small, and a disk that takes longer hangs.
const readPatience = 5 * time.Second

// hostFiles reads the configured files when somebody asks for it. What a file says counts once it is in the log; a
// restart is no order, and applies no edit that nobody asked to apply.
type hostFiles struct {
	files   hosts.Files
	turn    chan struct{} // holds one while lists are read and decided: an older reading must not overtake a newer
	reading chan struct{} // holds one while a file is open: what hangs is not begun a second time

	mu       sync.Mutex      // guards what follows
	stale    string          // why the files were not what is in force when this process started
	shut     map[string]bool // nodes that were refused, and told of, since the lists last changed
	maintain time.Time       // when the next maintenance ends
}

func newHostFiles(files hosts.Files) *hostFiles {
	return &hostFiles{files: files, turn: make(chan struct{}, 1), reading: make(chan struct{}, 1), shut: map[string]bool{}}
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

// read reads both files, or says why it could not. A disk that hangs keeps the goroutine, which nothing can end, and
// nobody else.
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

// hostsInForce reads the durable part.
func (f *fleet) hostsInForce() (h registry.HostsState) {
	f.ledger.view(func(m *registry.Registry) { h = m.Hosts })
	return h
}

// startHosts brings the lists in line with the settings. Files that were read before are only compared; new ones are
// read, and what they exclude may drain. Where no lists were ever in force and the files cannot be read, there is no
// saying who may join, and the coordinator does not start.
func (f *fleet) startHosts() error {
	f.hosts.differ("") // another may have led since, and read them
	was := f.hostsInForce().Lists
	if !f.hosts.configured() {
		return f.startWithout(was)
	}
	known := was != nil && was.IncludeFile == f.hosts.files.Include && was.ExcludeFile == f.hosts.files.Exclude
	if was != nil && !known && !f.ledger.alone() {
		f.log.Warn("the settings name other host files than those that another leader read: give every coordinator the same",
			"files", strings.Join(f.hosts.files.Paths(), " "), "others", strings.Join(was.Paths(), " "))
	}
	lists, err := f.hosts.read(was)
	switch {
	case known && err != nil:
		f.heldBack(err.Error())
	case known && !lists.Equal(was):
		f.heldBack("the files have changed since they were read: lifeboat refresh-nodes applies them")
	case known:
	case err == nil:
		return f.applyHosts(lists)
	case was == nil:
		return fmt.Errorf("host files: %w", err)
	default:
		return f.refuseHosts(context.Background(), err)
	}
	return nil
}

// startWithout is startHosts where the settings name no files. Of several coordinators that is one whose settings lack them, rather, and
// everybody whom the others keep out would be let in whenever it leads.
func (f *fleet) startWithout(was *hosts.Lists) error {
	switch {
	case was == nil:
		return nil
	case f.ledger.alone(), was.Welcomes():
		return f.applyHosts(nil)
	}
	f.heldBack("the settings of this coordinator name no host files, and the lists of " + strings.Join(was.Paths(), ", ") + " stay in force: give every coordinator the same")
	return nil
}

// heldBack says why the lists in force are not those of the settings.
func (f *fleet) heldBack(why string) {
	f.hosts.differ(why)
	f.log.Warn("the host files are not in force", "err", why)
}

func (f *fleet) applyHosts(lists *hosts.Lists) error {
	_, err := f.do(registry.Command{Do: registry.DoHosts, Hosts: lists, Order: &registry.Order{Timeout: f.cfg.DecommissionTimeout}})
	return err
}

func (f *fleet) refuseHosts(ctx context.Context, why error) error {
	_, err := f.decide(ctx, registry.Command{Do: registry.DoRefuseHosts, Reason: registry.Shortened(why.Error())})
	return err
}

func (h *hostFiles) differ(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = why
}

// changed forgets what was said under the lists before.
func (h *hostFiles) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = ""
	clear(h.shut)
}

// refusedNews says whether a node's refusal was not told yet: it asks again every few seconds.
func (h *hostFiles) refusedNews(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.shut[name]
	h.shut[name] = true
	return !was
}

// admit refuses a registration before it costs a write: an excluded node asks for ever.
func (f *fleet) admit(c registry.Command) error {
	var err error
	f.ledger.view(func(m *registry.Registry) { err = m.Refuses(c) })
	if !errors.Is(err, registry.ErrExcluded) && !errors.Is(err, registry.ErrDown) && !errors.Is(err, registry.ErrGone) {
		return nil
	}
	f.metrics.refused.Inc()
	if f.hosts.refusedNews(c.Nodes[0]) {
		f.log.Warn("a node may not join", "node", c.Nodes[0], "err", err)
	}
	return asStatus(err)
}

// maintained says whether the files have the node under maintenance: it is there, and takes nothing.
func (f *fleet) maintained(n registry.Node, now time.Time) bool {
	return f.hostsInForce().Lists.Maintained(n.Name, n.PeerAddress, now)
}

// maintenanceEnds says, once, that some maintenance has ended since it was last asked.
func (f *fleet) maintenanceEnds(now time.Time) bool {
	var next time.Time
	if l := f.hostsInForce().Lists; l != nil {
		for _, until := range l.Maintenance {
			if until.After(now) && (next.IsZero() || until.Before(next)) {
				next = until
			}
		}
	}
	f.hosts.mu.Lock()
	defer f.hosts.mu.Unlock()
	was := f.hosts.maintain
	f.hosts.maintain = next
	return !was.IsZero() && !now.Before(was)
}

// RefreshNodes reads the host files and does what they say, in one decision for all nodes: all that are excluded together
// leave together.
func (s *operator) RefreshNodes(ctx context.Context, r *api.RefreshNodesRequest) (*api.RefreshNodesReply, error) {
	if err := checkSpan("timeout", r.Timeout); err != nil {
		return nil, err
	}
	if r.Timeout != nil && !r.Graceful {
		return nil, fault("a timeout of %s without graceful: who is forced has none", r.Timeout.AsDuration())
	}
	if !s.hosts.configured() {
		if trouble := s.hostsTo().GetTrouble(); trouble != "" {
			return nil, status.Error(codes.FailedPrecondition, trouble)
		}
		return nil, status.Error(codes.FailedPrecondition, "there are no host files: set hosts.exclude or hosts.include in the coordinator's settings")
	}
	release, err := s.hosts.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	inForce := s.hostsInForce()
	lists, err := s.hosts.read(inForce.Lists)
	if err != nil {
		if written := s.refuseHosts(ctx, err); written != nil {
			s.log.Warn("the host files are refused, and that cannot be written to the log", "err", err)
		}
		return nil, status.Errorf(codes.FailedPrecondition, "refused: %v: the lists of %s stay in force", err, inForce.Since.Format(time.RFC3339))
	}
	timeout := s.cfg.DecommissionTimeout
	if r.Timeout != nil {
		timeout = max(r.Timeout.AsDuration(), hosts.Forever)
	}
	events, err := s.decide(ctx, registry.Command{Do: registry.DoHosts, Hosts: lists, Force: !r.Graceful, Order: &registry.Order{Timeout: timeout}})
	if err != nil {
		return nil, asStatus(err)
	}
	s.hosts.differ("")
	return &api.RefreshNodesReply{Hosts: s.hostsTo(), Nodes: s.refreshed(events), Timeout: durationpb.New(timeout)}, nil
}

// actions are the words for what was done to a node, by the event that told of it.
var actions = map[string]string{
	registry.EventDecommissioning: "decommission", registry.EventDecommissioned: "force", registry.EventShutdown: "shutdown", registry.EventDeadline: "timeout", registry.EventRecommissioned: "recommission",
}

// refreshed are the nodes that were touched, and those that were leaving before and still have to.
func (f *fleet) refreshed(events []registry.Event) []*api.RefreshedNode {
	lists := f.hostsInForce().Lists
	did := map[string]string{}
	for _, e := range events {
		did[e.Node] = cmp.Or(actions[e.Type], did[e.Node])
	}
	var all []*api.RefreshedNode
	for _, n := range f.nodes() {
		if did[n.Name] != "" || n.Leaving() && lists.Judge(n.Name, n.PeerAddress).Excluded() {
			all = append(all, &api.RefreshedNode{Node: f.picture(n), Action: did[n.Name]})
		}
	}
	return all
}

// hostsTo is the lists in force, as people are told; nil where there are none.
func (f *fleet) hostsTo() *api.HostLists {
	h := f.hostsInForce()
	if h.Lists == nil {
		return nil
	}
	out := &api.HostLists{
		IncludeFile: h.Lists.IncludeFile, ExcludeFile: h.Lists.ExcludeFile, Since: timestamppb.New(h.Since),
		Included: int64(len(h.Lists.Include)), Excluded: int64(len(h.Lists.Exclude)), Maintenance: int64(len(h.Lists.Maintenance)),
	}
	if h.Refused != nil {
		out.Trouble = "refused at " + h.Refused.At.Format(time.RFC3339) + ": " + h.Refused.Reason
		return out
	}
	f.hosts.mu.Lock()
	defer f.hosts.mu.Unlock()
	out.Trouble = f.hosts.stale
	return out
}
