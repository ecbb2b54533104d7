package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
)

const (
	// reapPace is how late a lease or a deadline may be found to have run out.
	reapPace = 250 * time.Millisecond

	// reapBatch bounds one entry of the log when a whole zone falls silent.
	reapBatch = 1000

	// beatsPerSecond is what one coordinator answers at ease on two cores: measured, 8,000 to 15,000 over mutual TLS. A
	// larger fleet is asked to beat less often.
	beatsPerSecond = 8000

	// unsaidBeats is how many beats without notice and without drain it takes to believe that an announced decommission was
	// taken back while nobody here could hear it.
	unsaidBeats = 3

	// settle bounds how long a new process waits for the nodes of the log before it tells anybody who its peers are: longer
	// than an agent's pause between two attempts (5 s) and the attempt itself.
	settle = 12 * time.Second
)

// fleet is all that a running coordinator knows: the durable ledger and the soft rest.
type fleet struct {
	cfg        Config
	log        *slog.Logger
	ledger     *ledger
	leases     *leases
	roster     *roster
	blocks     *blocks
	manifests  *manifests
	metrics    *metrics
	hosts      *hostFiles
	colleagues *colleagues
	started    time.Time
	tookOver   atomic.Pointer[time.Time] // when this coordinator began to lead, or its process began

	goodbyes sync.Mutex // held while a manifest enters the log, and files that left it are removed
}

// openFleet reads what is under data_dir. It answers for nothing before takeOver.
func openFleet(cfg Config, st *streams, log *slog.Logger) (*fleet, error) {
	if err := makeDir(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	l, err := openLedger(ledgerConfig{dir: cfg.DataDir, own: cfg.Name, peers: cfg.Peers, election: cfg.Election, streams: st, log: log})
	if err != nil {
		return nil, err
	}
	kept, err := openManifests(filepath.Join(cfg.DataDir, "manifests"), log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("manifests: %w", err), l.Close())
	}
	now := time.Now()
	f := &fleet{
		cfg: cfg, log: log, ledger: l, manifests: kept, started: now,
		leases: newLeases(nil, now), roster: newRoster(), blocks: newBlocks(), hosts: newHostFiles(cfg.Hosts),
	}
	f.colleagues = &colleagues{ledger: l, conns: map[Peer]*grpc.ClientConn{}}
	if st != nil {
		f.colleagues.identity, f.colleagues.dial = st.identity, st.dial
	}
	f.tookOver.Store(&now)
	f.metrics = newMetrics(f)
	return f, nil
}

func (f *fleet) Close() error {
	f.ledger.office.quit()
	return errors.Join(f.colleagues.Close(), f.ledger.Close(), f.manifests.Close())
}

// do decides a command and follows it through the soft state.
func (f *fleet) do(c command) ([]event, error) {
	events, err := f.ledger.do(c)
	for _, e := range events {
		switch e.Type {
		case evReplaced, evForgotten:
			f.blocks.forget(e.Node)
			f.leases.forget(e.Node)
		case evHosts:
			f.hosts.changed()
		}
		level := slog.LevelInfo
		if e.Type == evLost || e.Type == evExcluded || e.Type == evHostsRefused || e.Data["outcome"] == string(timedOut) || e.Data["outcome"] == string(forced) || e.Data["lost"] != "" && e.Data["lost"] != "0" {
			level = slog.LevelWarn
		}
		words := []any{"event", e.Type, "node", e.Node, "index", e.Index}
		for _, k := range slices.Sorted(maps.Keys(e.Data)) {
			words = append(words, k, e.Data[k])
		}
		f.log.Log(context.Background(), level, "fleet changed", words...)
		f.metrics.saw(e)
	}
	if len(events) > 0 {
		f.roster.change()
	}
	return events, err
}

// node reads the durable record of one node.
func (f *fleet) node(name string) (n node, known bool) {
	f.ledger.view(func(m *machine) { n, known = m.Nodes[name] })
	return n, known
}

// nodes reads all, by name.
func (f *fleet) nodes() []node {
	var all []node
	f.ledger.view(func(m *machine) {
		all = make([]node, 0, len(m.Nodes))
		for _, n := range m.Nodes {
			all = append(all, n)
		}
	})
	slices.SortFunc(all, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// picture is one node as it is shown.
func (f *fleet) picture(n node) *api.Node {
	now := time.Now()
	out := nodeTo(n, f.leases.read(n.Name), now)
	if f.maintained(n, now) {
		out.Maintenance, out.Schedulable = "DOWN", false
	}
	return out
}

// pace grows the interval with the fleet, as far as the lease allows.
func (f *fleet) pace() (interval, lease time.Duration) {
	var n int
	f.ledger.view(func(m *machine) { n = len(m.Nodes) })
	interval = max(f.cfg.Heartbeat, time.Duration(n)*time.Second/beatsPerSecond)
	return min(interval, f.cfg.Lease/3), f.cfg.Lease
}

// settled says whether everybody who should be here has been heard, or had the time. Before that a list of peers would
// leave out nodes that are well, and agents keep the list that they have.
func (f *fleet) settled(now time.Time) bool {
	return !f.leases.waiting() || now.Sub(*f.tookOver.Load()) >= min(settle, f.cfg.Lease)
}

// peersOf is what asker is told. Version 0 with no peers leaves its list as it is.
func (f *fleet) peersOf(asker string, has uint64) (version uint64, peers []*api.Peer) {
	now := time.Now()
	if !f.settled(now) {
		return has, nil
	}
	if version, peers = f.roster.pick(asker, now, f.takers); version == has {
		peers = nil
	}
	return version, peers
}

// takers are the nodes that may take blocks.
func (f *fleet) takers() []*api.Peer {
	var peers []*api.Peer
	now := time.Now()
	for _, n := range f.nodes() {
		if n.State != Active || n.Excluded || f.maintained(n, now) {
			continue
		}
		if p := f.leases.read(n.Name); p.heard && !watched(p.status) && p.room > 0 {
			peers = append(peers, &api.Peer{Node: n.Name, Address: n.PeerAddress, Zone: n.Zone, Pool: n.Pool, RoomBytes: p.room})
		}
	}
	return peers
}

// reap ends what the clock ends, until ctx ends.
func (f *fleet) reap(ctx context.Context) error {
	tick := time.NewTicker(reapPace)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := f.ledger.lead(); err != nil {
			last = time.Now()
			continue
		}
		now := time.Now()
		if gap := now.Sub(last); gap > f.cfg.Lease/3 {
			// A stopped process or machine has heard nobody: that is no news about them.
			f.log.Warn("the coordinator was held up: every lease begins anew", "took", gap)
			f.leases.regrant(now)
		}
		last = now
		f.reapOnce(now)
		if f.maintenanceEnds(now) {
			f.roster.change()
		}
	}
}

func (f *fleet) reapOnce(now time.Time) {
	var silent, late, gone []string
	f.ledger.view(func(m *machine) {
		for _, n := range m.Nodes {
			switch {
			case n.leaving() && !n.Decommission.deadline().IsZero():
				if !now.Before(n.Decommission.deadline()) {
					late = append(late, n.Name)
				}
			case n.State == Active || n.leaving():
				if f.leases.silent(n.Name, now, f.cfg.Lease) {
					silent = append(silent, n.Name)
				}
			case n.gone(now):
				gone = append(gone, n.Name)
			}
		}
	})
	for do, names := range map[verb][]string{doLose: silent, doTimeout: late, doForget: gone} {
		for batch := range slices.Chunk(names, reapBatch) {
			if _, err := f.do(command{Do: do, Nodes: batch}); errors.Is(err, errFollows) || errors.Is(err, errDeposed) {
				return // it is the next leader's business
			} else if err != nil {
				f.log.Error("the clock's decision was not written down and is tried again", "event", string(do), "err", err)
			}
		}
	}
}

// locate answers where a block may be read.
func (f *fleet) locate(id string) (*api.LocateReply, error) {
	if err := checkID(id); err != nil {
		return nil, fault("%v", err)
	}
	asked := id
	if whole := string(migration.BlockID(id).Block()); !f.toldOf(id) && f.toldOf(whole) {
		asked = whole // a file of a block that landed or was lost whole
	}
	said, _ := f.blocks.holders(keyOf(asked))
	reply := &api.LocateReply{State: "unknown", Holders: f.reachable(said)}
	switch {
	case len(reply.Holders) > 0:
		reply.State = "held"
		return reply, nil
	case len(said) > 0 || f.lost(asked):
		reply.State = "lost"
	}
	reply.Candidates = f.candidates(id)
	return reply, nil
}

// toldOf says whether anybody told of a block under that very id.
func (f *fleet) toldOf(id string) bool {
	said, _ := f.blocks.holders(keyOf(id))
	return len(said) > 0 || f.lost(id)
}

// lost says whether a manifest names the block as lost and its node has not come back with it.
func (f *fleet) lost(id string) (lost bool) {
	ref := f.manifests.namedLost(id)
	if ref != nil {
		f.ledger.view(func(m *machine) { lost = m.inForce(ref) })
	}
	return lost
}

// reachable turns names into holders: those that stay first, those that are gone not at all. A node that announced a
// restart is on its way back.
func (f *fleet) reachable(names []string) []*api.Holder {
	var stay, leave []*api.Holder
	for _, name := range names {
		n, _ := f.node(name)
		h := &api.Holder{Node: n.Name, Address: n.PeerAddress}
		switch n.State {
		case Active:
			stay = append(stay, h)
		case Decommissioning, Shutdown:
			leave = append(leave, h)
		case Decommissioned:
			if f.present(n) {
				leave = append(leave, h)
			}
		}
	}
	return append(stay, leave...)
}

// present says whether a node that has nothing to do with us any more still answers.
func (f *fleet) present(n node) bool {
	p := f.leases.read(n.Name)
	return p.heard && time.Since(p.seen) <= f.cfg.Lease
}

// maxCandidates bounds whom a reader is sent to ask.
const maxCandidates = 128

// candidates are the nodes that have a store of the block's name, and those that have yet to say what landed there: after
// a restart nobody has told us anything, and what is not known is not "no". Where there are too many, different blocks
// get different ones.
func (f *fleet) candidates(id string) []*api.Holder {
	store, _, _ := strings.Cut(id, "/")
	var all []*api.Holder
	for _, n := range f.nodes() {
		p := f.leases.read(n.Name)
		has := !f.blocks.reported(n.Name) || slices.ContainsFunc(p.status.GetStores(), func(s *api.StoreInfo) bool { return s.GetName() == store })
		if has && (n.State == Active || n.leaving() || n.State == Decommissioned && f.present(n)) {
			all = append(all, &api.Holder{Node: n.Name, Address: n.PeerAddress})
		}
	}
	if len(all) > maxCandidates {
		start := int(hashOf(id) % uint64(len(all)))
		all = append(all[start:], all[:start]...)[:maxCandidates]
	}
	return all
}

// asStatus gives a refusal the code and the words that callers act on.
func asStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUnknownNode):
		return status.Errorf(codes.NotFound, "%v: it must register first; lifeboat nodes lists those that did", err)
	case errors.Is(err, errIncarnation):
		return status.Errorf(codes.FailedPrecondition, "%v: another machine has this name, or this one has yet to register", err)
	case errors.Is(err, errExcluded):
		return status.Errorf(codes.FailedPrecondition, "%v: change the file, then lifeboat refresh-nodes", err)
	case errors.Is(err, errOwnNotice):
		return status.Errorf(codes.FailedPrecondition, "%v: an order cannot take that back: cancel it on the node, or wait for the end and recommission then", err)
	case errors.Is(err, errDeposed), errors.Is(err, errFollows):
		return overtaken{err}
	case errors.Is(err, errNoLog):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
