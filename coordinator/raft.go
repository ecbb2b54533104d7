package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/durable"
)

const (
	// voter is the name in raft's configuration of a coordinator on its own. It is no host name: a coordinator that is renamed, or
	// restored on another machine, must still find itself in its log's configuration.
	voter = "coordinator"

	// alone is the election of a single voter. It decides nothing but the time from start to first write: one to two of these.
	alone = 50 * time.Millisecond

	// applyPatience bounds the wait for a place in raft's queue: when a disk is stuck, calls fail instead of piling up.
	applyPatience = 5 * time.Second

	// wirePatience bounds one message between coordinators, so that a message on a link that was cut does not hold up the next ones for long
	// once the link is whole again.
	wirePatience = 2 * time.Second

	// Snapshots keep the log short, and with it the walk over the log at the start. Commands are rare: tens a second in a bad hour.
	snapshotEvery  = 1024 // entries
	snapshotCheck  = 30 * time.Second
	snapshotsKept  = 2
	entriesBehind  = 128
	batchedEntries = 256
)

// errNoLog says that a command was not decided because the log could not be written.
var errNoLog = errors.New("the coordinator cannot write its log now: try again in a second; if it lasts, look at the disk of its data_dir")

// ledger is the durable state behind raft: do decides commands, view reads the registry.
type ledger struct {
	raft      *raft.Raft
	store     *raftstore.Store
	fsm       *replica
	log       *raftLog
	streams   *streams // nil: this coordinator is alone
	wires     io.Closer
	started   atomic.Pointer[raft.Raft] // raft, for methods that raft calls while it is being made
	own       raft.ServerID
	peers     []Peer
	addresses map[raft.ServerID]address // of peers
	dir       string
	office    *office
	steady    steady
	disowned  atomic.Bool           // a coordinator that has a leader said that this one is no member
	turned    chan raft.Observation // raft's word that there may be another leader

	// decided is told of the events of each command before do returns, and also when do has given up on a disk that hangs, and the command
	// was decided after all. Nil: nobody is.
	decided func([]registry.Event)
}

// ledgerConfig says where a ledger is and which coordinators share it.
type ledgerConfig struct {
	dir      string
	own      string // this coordinator's name among peers
	peers    []Peer // empty: it is on its own
	election time.Duration
	streams  *streams
	log      *slog.Logger
}

// openLedger opens or makes the ledger under dir, and begins to take part in elections.
func openLedger(c ledgerConfig) (_ *ledger, err error) {
	defer func() {
		if _, bad := errors.AsType[raftstore.DamagedError](err); bad {
			err = fmt.Errorf("%w: %s", err, c.remedy())
		}
	}()
	store, err := raftstore.Open(filepath.Join(c.dir, "raft.db"), c.log)
	if err != nil {
		return nil, err
	}
	l := &ledger{store: store, fsm: newReplica(), log: newRaftLog(c.log), streams: c.streams, own: voter, peers: c.peers, dir: c.dir}
	l.office, l.turned = newOffice(c.election/2), make(chan raft.Observation, 1)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()

	snapshots, err := raftstore.OpenSnapshots(c.dir, snapshotsKept, l.log)
	if err != nil {
		return nil, err
	}
	if err := l.whole(snapshots); err != nil {
		return nil, err
	}
	conf := raftConfig(l.log)
	var transport raft.Transport
	if l.alone() {
		_, wires := raft.NewInmemTransport(voter)
		transport, l.wires = wires, wires
	} else {
		l.own, conf.LocalID = raft.ServerID(c.own), raft.ServerID(c.own)
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = c.election, c.election, c.election
		c.streams.nameAt = l.nameAt
		wires := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			ServerAddressProvider: l, Logger: l.log, Stream: c.streams, MaxPool: 2, Timeout: wirePatience, MsgpackUseNewTimeFormat: true,
			// No pipelines: a leader of raft 1.8.0 that is replaced while its pipeline is full waits for it without end, and then does
			// not stop either. Without pipelines little is lost: decisions are few, and many at once share a message.
			MaxRPCsInFlight: 1,
		})
		transport, l.wires = wires, wires
	}
	if err := l.begin(conf, snapshots, transport); err != nil {
		return nil, err
	}
	if l.raft, err = raft.NewRaft(conf, l.fsm, store, store, snapshots, transport); err != nil {
		return nil, fmt.Errorf("read the log under %s: %w", c.dir, err)
	}
	l.started.Store(l.raft)
	l.raft.RegisterObserver(raft.NewObserver(l.turned, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	return l, nil
}

// remedy says what to do about a damaged log or snapshot.
func (c ledgerConfig) remedy() string {
	for _, p := range c.peers {
		if len(c.peers) > 1 && p.Name == c.own { // its votes and acknowledgements to the others are lost with the log
			return fmt.Sprintf("do not bring an older one back, which has forgotten what it promised the others: while they run, lifeboat raft add %s=%s --replacing %s, and then start this one with an empty data_dir", c.own, p.Address, c.own)
		}
	}
	return "lifeboat raft restore begins with a snapshot that lifeboat raft snapshot saved; or remove raft.db and snapshots, to begin with an empty fleet"
}

// whole refuses a log that begins after the newest readable snapshot with a gap between the two. Raft would take that snapshot, and end
// the process or go on without the decisions in the gap.
func (l *ledger) whole(snapshots raft.SnapshotStore) error {
	all, err := snapshots.List() // the newest first
	if err != nil || len(all) == 0 {
		return err
	}
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	var faults []error
	for i, s := range all {
		_, body, err := snapshots.Open(s.ID)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s.ID, err))
			continue
		}
		if body.Close(); i == 0 || first != 0 && first <= s.Index+1 {
			return nil
		}
		break
	}
	return raftstore.Damaged("the snapshots under %s are damaged, and its log begins later, at entry %d: %w", l.dir, first, errors.Join(faults...))
}

func raftConfig(log *raftLog) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = voter
	conf.Logger = log
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = alone, alone, alone
	conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = snapshotCheck, snapshotEvery, entriesBehind
	conf.MaxAppendEntries, conf.BatchApplyCh = batchedEntries, true
	conf.ShutdownOnRemove = false // a coordinator that was removed runs on and says so, until somebody stops it
	conf.NoLegacyTelemetry = true
	return conf
}

// members is raft's configuration in a new log: these peers, or one coordinator on its own.
func members(peers []Peer) (all raft.Configuration) {
	if len(peers) == 0 {
		return raft.Configuration{Servers: []raft.Server{{ID: voter, Address: voter}}}
	}
	for _, p := range peers {
		all.Servers = append(all.Servers, raft.Server{ID: raft.ServerID(p.Name), Address: raft.ServerAddress(p.Address)})
	}
	return all
}

// begin makes a log if there is none, and turns the log of a coordinator on its own into one of several. Of several coordinators only the
// first of the list begins a log, and the others join it. Otherwise two that start with empty disks, beside a third that has the
// fleet in its log, would be a majority for an empty fleet.
func (l *ledger) begin(conf *raft.Config, snapshots raft.SnapshotStore, transport raft.Transport) error {
	begun, err := raft.HasExistingState(l.store, l.store, snapshots)
	if err != nil {
		return fmt.Errorf("read the log under %s: %w", l.dir, err)
	}
	switch is, err := l.store.GetUint64(unrestored); {
	case err != nil:
		return fmt.Errorf("read the log under %s: %w", l.dir, err)
	case is == 1:
		return fmt.Errorf("lifeboat raft restore was cut short under %s: restore again", l.dir)
	}
	var was raft.Configuration
	if begun {
		look := *conf
		_, nowhere := raft.NewInmemTransport(transport.LocalAddr())
		if was, err = raft.GetConfiguration(&look, newReplica(), l.store, l.store, snapshots, nowhere); err != nil {
			return fmt.Errorf("read the log under %s: %w", l.dir, err)
		}
	}
	if l.addresses, err = readAddresses(l.store, l.peers, was); err != nil {
		return fmt.Errorf("read the log under %s: %w", l.dir, err)
	}
	first := l.alone() || l.peers[0].Name == string(l.own)
	switch {
	case !begun && !first:
		return nil
	case !begun:
		if err := l.store.Begin(members(l.peers)); err != nil {
			return fmt.Errorf("begin a log under %s: %w", l.dir, err)
		}
		return nil
	}
	wasAlone := len(was.Servers) == 1 && was.Servers[0].ID == voter
	switch {
	case len(was.Servers) == 0 && first: // it would wait for ever for another to make it a member
		return fmt.Errorf("%s has a log without members, as a first start or lifeboat raft restore of an earlier version left that was cut short: restore again, or remove raft.db to begin an empty fleet", l.dir)
	case len(was.Servers) == 0 || wasAlone == l.alone():
		return nil
	case l.alone():
		return fmt.Errorf("%s has the log of %d coordinators, and peers is empty: bring peers back, or save a snapshot and begin anew with lifeboat raft restore", l.dir, len(was.Servers))
	case !first:
		return fmt.Errorf("%s has a fleet of its own: put this coordinator first in peers, in every file, or empty data_dir to have it join %s", l.dir, l.peers[0].Name)
	}
	if err := raft.RecoverCluster(conf, newReplica(), l.store, l.store, snapshots, transport, members(l.peers)); err != nil {
		return fmt.Errorf("bring the log under %s to %d coordinators: %w", l.dir, len(l.peers), err)
	}
	return nil
}

func (l *ledger) alone() bool { return l.streams == nil }

// awaitLead returns once this coordinator, the only voter, leads and has applied all earlier decisions.
func (l *ledger) awaitLead(ctx context.Context) error {
	select {
	case <-l.raft.LeaderCh():
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.catchUp()
}

// catchUp returns once all decisions of any leader are applied here. A coordinator that was elected has all of them in its log
// (Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm, 5.4.3): if the last command of the log is
// applied already, there is nothing to wait for.
func (l *ledger) catchUp() error {
	l.log.began.Store(true)
	last, err := l.store.LastCommand()
	if err == nil && !l.fsm.applied(last) {
		err = l.store.UnlessHung(func() error { return l.raft.Barrier(0).Error() })
	}
	if err != nil {
		return fmt.Errorf("apply the log under %s: %w", l.dir, err)
	}
	return l.fsm.trouble()
}

// applied is up to which entry of the log the registry is, give or take a batch. Raft counts what waits for the registry as applied: after
// a start that can be all of the log.
func (l *ledger) applied() uint64 {
	at := l.raft.AppliedIndex()
	if l.raft.Stats()["fsm_pending"] != "0" {
		return min(at, l.fsm.newest.Load())
	}
	return at
}

// closePatience bounds the time to stop raft and close its files. That takes milliseconds, unless a disk hangs.
const closePatience = 5 * time.Second

// Close stops raft and closes its files. It does not wait for a hanging disk: what was acknowledged is on it, as after a crash.
func (l *ledger) Close() error {
	l.store.GiveUp()
	closed := make(chan error, 1)
	go func() { closed <- l.close() }()
	patience := closePatience
	if l.store.Hangs() != nil {
		patience = 0
	}
	select {
	case err := <-closed:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the log under %s is not closed, but left as by a crash: its disk does not answer", l.dir)
	}
}

func (l *ledger) close() error {
	var err error
	if l.raft != nil {
		err = l.raft.Shutdown().Error()
	}
	if l.wires != nil {
		err = errors.Join(err, l.wires.Close())
	}
	return errors.Join(err, l.store.Close())
}

func (l *ledger) leads() bool { return l.raft.State() == raft.Leader }

// do stamps c with the time, writes it to the log and applies it. If it returns without an error the outcome survives a crash. A
// command that would change nothing is not written.
func (l *ledger) do(c registry.Command) ([]registry.Event, error) {
	c.Version, c.At = registry.CommandVersion, l.steady.now().UTC()
	idle := false
	l.fsm.view(func(m *registry.Registry) { idle = m.Idle(c) })
	if idle {
		return nil, l.verify() // the registry here is only known to be the newest while no other coordinator leads
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if err := l.store.Hangs(); err != nil {
		return nil, fmt.Errorf("%w (%w)", errNoLog, err)
	}
	f := l.raft.Apply(data, applyPatience)
	err = l.store.UnlessHung(func() error {
		err := f.Error()
		if err == nil && l.decided != nil {
			l.decided(f.Response().(verdict).events)
		}
		return err
	})
	if err != nil {
		return nil, l.whyNot(err)
	}
	v := f.Response().(verdict)
	return v.events, v.err
}

func (l *ledger) view(look func(*registry.Registry)) { l.fsm.view(look) }

// verdict is the outcome of applying one command.
type verdict struct {
	events []registry.Event
	err    error
}

// replica is the registry as raft's state machine.
type replica struct {
	newest  atomic.Uint64 // index of the newest command that was applied; 0: none since the snapshot
	mu      sync.RWMutex  // guards all below
	machine *registry.Registry
	broken  error // why the registry is not what the log says: an entry, or the snapshot before it, could not be read
	hub     *hub  // publishes its events
}

const runNewer = "run the lifeboat that wrote it, or a newer one"

func newReplica() *replica {
	return &replica{machine: registry.New(), hub: newHub()}
}

func (r *replica) view(look func(*registry.Registry)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	look(r.machine)
}

func (r *replica) trouble() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.broken
}

// applied reports whether the command at index is known to be applied. It is false after a restored snapshot, which does not say what it has.
func (r *replica) applied(index uint64) bool {
	return index != 0 && r.newest.Load() >= index
}

// Apply implements raft.FSM.
func (r *replica) Apply(entry *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.newest.Store(entry.Index)
	var c registry.Command
	err := json.Unmarshal(entry.Data, &c)
	if err == nil && c.Version > registry.CommandVersion {
		err = fmt.Errorf("version %d, this lifeboat reads up to %d", c.Version, registry.CommandVersion)
	}
	if err != nil && r.broken == nil {
		r.broken = fmt.Errorf("log entry %d: %w: %s", entry.Index, err, runNewer)
	}
	if r.broken != nil {
		return verdict{err: r.broken}
	}
	c.Term = entry.Term
	events, err := r.machine.Apply(c)
	r.hub.publish(events)
	return verdict{events, err}
}

// Snapshot implements raft.FSM.
func (r *replica) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.broken != nil {
		return nil, r.broken // with a snapshot the entries that could not be read would be dropped
	}
	return frozen{r.machine.Freeze()}, nil
}

// Restore implements raft.FSM.
func (r *replica) Restore(from io.ReadCloser) error {
	defer from.Close()
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	m, err := registry.Thaw(data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine, r.broken = m, nil
	r.newest.Store(0)
	if m.Version > registry.CommandVersion {
		r.broken = fmt.Errorf("snapshot of version %d, this lifeboat reads up to %d: %s", m.Version, registry.CommandVersion, runNewer)
	}
	r.hub.reset(m.LastEvent)
	return nil
}

type frozen struct{ *registry.Registry }

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(f.Registry); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (frozen) Release() {}

// makeDir makes a directory that only the coordinator's user may read.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
