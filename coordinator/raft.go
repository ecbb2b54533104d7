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
	"time"

	"github.com/hashicorp/raft"
)

const (
	// voter names the only member in raft's own configuration. It is no host name: the log of a renamed coordinator, or one
	// restored on another machine, must still elect it.
	voter = "coordinator"

	// election is the shortest silence after which a voter stands for election. With one voter and no network between voters
	// it decides nothing but the time from start to first write: one to two of these.
	election = 50 * time.Millisecond

	// applyPatience bounds the wait for a place in raft's queue, so that a stuck disk is answered with an error instead of
	// with ever more waiting calls.
	applyPatience = 5 * time.Second

	// Snapshots keep the log short, and with it the walk at the start. State changes are rare: tens a second in a bad hour.
	snapshotEvery  = 1024 // entries
	snapshotCheck  = 30 * time.Second
	snapshotsKept  = 2
	entriesBehind  = 128
	batchedEntries = 256
)

// errNoLog is why a command was not decided.
var errNoLog = errors.New("the coordinator cannot write its log now: try again in a second; if it lasts, look at the disk of its data_dir")

// ledger is the durable state behind raft: commands go through do, readers look through view.
type ledger struct {
	raft  *raft.Raft
	store *raftStore
	fsm   *replica
}

// openLedger opens or makes the ledger under dir and returns once this voter leads and has applied all that was decided
// before.
func openLedger(ctx context.Context, dir string, log *slog.Logger) (_ *ledger, err error) {
	store, err := openRaftStore(filepath.Join(dir, "raft.db"), log)
	if err != nil {
		return nil, err
	}
	l := &ledger{store: store, fsm: newReplica()}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()

	rlog := newRaftLog(log)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, rlog)
	if err != nil {
		return nil, err
	}
	conf := raft.DefaultConfig()
	conf.LocalID = voter
	conf.Logger = rlog
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = election, election, election
	conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = snapshotCheck, snapshotEvery, entriesBehind
	conf.MaxAppendEntries, conf.BatchApplyCh = batchedEntries, true
	conf.NoLegacyTelemetry = true

	address, transport := raft.NewInmemTransport(voter)
	begun, err := raft.HasExistingState(store, store, snapshots)
	if err != nil {
		return nil, fmt.Errorf("read the log under %s: %w", dir, err)
	}
	if !begun {
		first := raft.Configuration{Servers: []raft.Server{{ID: voter, Address: address}}}
		if err := raft.BootstrapCluster(conf, store, store, snapshots, transport, first); err != nil {
			return nil, fmt.Errorf("begin a log under %s: %w", dir, err)
		}
	}
	if l.raft, err = raft.NewRaft(conf, l.fsm, store, store, snapshots, transport); err != nil {
		return nil, fmt.Errorf("read the log under %s: %w", dir, err)
	}
	select {
	case <-l.raft.LeaderCh():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rlog.began.Store(true)
	if err := l.raft.Barrier(0).Error(); err != nil {
		return nil, fmt.Errorf("apply the log under %s: %w", dir, err)
	}
	return l, l.fsm.trouble()
}

// Close stops raft and closes its files.
func (l *ledger) Close() error {
	var err error
	l.store.giveUp()
	if l.raft != nil {
		err = l.raft.Shutdown().Error()
	}
	return errors.Join(err, l.store.Close())
}

func (l *ledger) leads() bool { return l.raft.State() == raft.Leader }

// do stamps c, writes it to the log and applies it. When it returns without an error the outcome survives a crash. A
// command that would change nothing is not written.
func (l *ledger) do(c command) ([]event, error) {
	c.Version, c.At = commandVersion, time.Now().UTC().Round(0)
	idle := false
	l.fsm.view(func(m *machine) { idle = m.idle(c) })
	if idle {
		return nil, nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := l.raft.Apply(data, applyPatience)
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("%w (%w)", errNoLog, err)
	}
	v := f.Response().(verdict)
	return v.events, v.err
}

func (l *ledger) view(look func(*machine)) { l.fsm.view(look) }

// verdict is what applying one command came to.
type verdict struct {
	events []event
	err    error
}

// replica is the machine as raft drives it.
type replica struct {
	mu      sync.RWMutex // guards all below
	machine *machine
	broken  error         // why the machine is not what the log says
	news    chan struct{} // closed when there is a new event
}

func newReplica() *replica {
	return &replica{machine: newMachine(), news: make(chan struct{})}
}

func (r *replica) view(look func(*machine)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	look(r.machine)
}

func (r *replica) trouble() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.broken
}

// Apply implements raft.FSM.
func (r *replica) Apply(entry *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c command
	err := json.Unmarshal(entry.Data, &c)
	if err == nil && c.Version > commandVersion {
		err = fmt.Errorf("version %d, this lifeboat reads up to %d", c.Version, commandVersion)
	}
	if err != nil {
		r.broken = errors.Join(r.broken, fmt.Errorf("log entry %d: %w: run the lifeboat that wrote it, or a newer one", entry.Index, err))
		return verdict{err: r.broken}
	}
	events, err := r.machine.apply(c)
	if len(events) > 0 {
		close(r.news)
		r.news = make(chan struct{})
	}
	return verdict{events, err}
}

// Snapshot implements raft.FSM.
func (r *replica) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.broken != nil {
		return nil, r.broken // a snapshot would drop the entries that were not understood
	}
	return frozen{r.machine.freeze()}, nil
}

// Restore implements raft.FSM.
func (r *replica) Restore(from io.ReadCloser) error {
	defer from.Close()
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	m, err := thaw(data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine = m
	return nil
}

type frozen struct{ *machine }

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(f.machine); err != nil {
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
	return syncDir(filepath.Dir(path))
}
