package coordinator

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func openTestLedger(t *testing.T, dir string, log *slog.Logger) *ledger {
	t.Helper()
	l, err := tryLedger(t, dir, log)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tryLedger(t *testing.T, dir string, log *slog.Logger) (*ledger, error) {
	l, err := openLedger(ledgerConfig{dir: dir, log: log})
	if err != nil {
		return nil, err
	}
	if err := l.awaitLead(t.Context()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func registration(name string) registry.Command {
	return registry.Command{Do: registry.DoRegister, Nodes: []string{name}, Facts: &registry.Facts{Incarnation: "i", PeerAddress: name + ":1"}}
}

// What waits for the registry does not count as applied: a coordinator that has just started would be said to be as far as the others, and
// get the lead, before it has read its log.
func TestAppliedIsWhatTheRegistryHas(t *testing.T) {
	l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	if _, err := l.do(registration("a")); err != nil {
		t.Fatal(err)
	}
	command, err := json.Marshal(registration("b"))
	if err != nil {
		t.Fatal(err)
	}
	before := l.fsm.newest.Load()
	var last raft.ApplyFuture
	l.view(func(*registry.Registry) { // nothing is applied meanwhile
		for i := range uint64(3) {
			last = l.raft.Apply(command, 0)
			for l.raft.AppliedIndex() < before+i+1 {
				runtime.Gosched()
			}
		}
		if got := l.applied(); got != before {
			t.Errorf("got entry %d, want %d", got, before)
		}
	})
	if err := last.Error(); err != nil || l.fsm.newest.Load() != before+3 {
		t.Errorf("got entry %d at last, want %d (%v)", l.fsm.newest.Load(), before+3, err)
	}
}

func TestLedgerComesBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		began := time.Now()
		l := openTestLedger(t, dir, log)
		if took := time.Since(began); took > 4*alone {
			t.Errorf("got %s to the first leader, want about %s", took, alone)
		}
		var want string
		for i := range 300 {
			if _, err := l.do(registration(fmt.Sprintf("n%03d", i))); err != nil {
				t.Fatal(err)
			}
			if i == 150 { // the first half comes back from a snapshot
				if err := l.raft.Snapshot().Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
		index := l.raft.LastIndex()
		if _, err := l.do(registration("n000")); err != nil || l.raft.LastIndex() != index {
			t.Errorf("a command that changes nothing was written (%v)", err)
		}
		l.view(func(m *registry.Registry) { want = written(t, m) })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openTestLedger(t, dir, log)
		defer l.Close()
		l.view(func(m *registry.Registry) {
			if got := written(t, m); got != want {
				t.Error("the machine that came back is another")
			}
		})
		if said.Len() > 0 {
			t.Errorf("an ordinary life of raft is no news: %s", &said)
		}
	})
}

func TestLedgerRefusesNewerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := openTestLedger(t, dir, slog.New(slog.DiscardHandler))
		if err := l.raft.Apply(fmt.Appendf(nil, `{"v":%d,"do":"fly"}`, registry.CommandVersion+1), 0).Error(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := tryLedger(t, dir, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "or a newer one") {
			t.Errorf("got %v, want to be told to run the lifeboat that wrote it", err)
		}
	})
}

// While the disk is full decisions are refused with the reason, and everything else goes on; once there is room decisions are made again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		l := openTestLedger(t, t.TempDir(), slog.New(slog.NewTextHandler(&said, nil)))
		limit := func(bytes int) {
			l.store.DB().Update(func(*bolt.Tx) error { // for its lock alone: nothing is committed
				l.store.DB().MaxSize = bytes
				return errors.New("rolled back")
			})
		}
		if _, err := l.do(registration("a")); err != nil {
			t.Fatal(err)
		}
		limit(1)
		big := registration("b")
		big.Facts.Zone = strings.Repeat("x", 1<<20)
		if _, err := l.do(big); !errors.Is(err, errNoLog) {
			t.Fatalf("got %v, want %v", err, errNoLog)
		}
		for range 60 {
			time.Sleep(time.Second)
			l.do(big)
		}
		synctest.Wait() // until all writes to the log are done
		if lines := strings.Count(said.String(), "\n"); lines == 0 || lines > 12 {
			t.Errorf("got %d lines in a minute, want a few: %s", lines, &said)
		}
		if term := l.raft.CurrentTerm(); term > 200 {
			t.Errorf("got %d elections in a minute, want about one a second", term)
		}
		limit(0)
		time.Sleep(3 * time.Second)
		if _, err := l.do(big); err != nil {
			t.Errorf("the disk is well again: %v", err)
		}
		l.view(func(m *registry.Registry) {
			if len(m.Nodes) != 2 {
				t.Errorf("got %d nodes, want 2", len(m.Nodes))
			}
		})
		limit(1)
		l.do(registration(strings.Repeat("c", 1<<20)))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSecondCoordinatorIsRefused(t *testing.T) {
	inTown(t, func(v *town) {
		_, err := tryLedger(v.T, v.cfg.DataDir, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "another process has it open") {
			v.Errorf("got %v, want a word about the other process", err)
		}
	})
}

func TestDecisionsSurviveWithoutGoodbye(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		v.order(time.Hour, "a")
		// What a kill -9 leaves: the files as they are, not closed.
		copied := v.TempDir()
		log, err := os.ReadFile(filepath.Join(v.cfg.DataDir, "raft.db"))
		if err := errors.Join(err, os.WriteFile(filepath.Join(copied, "raft.db"), log, 0o600)); err != nil {
			v.Fatal(err)
		}
		v.stop()
		v.cfg.DataDir = copied
		v.start()
		v.is("a", registry.Decommissioning)
		_, err = v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "b"})
		v.refused(err, codes.NotFound, "b")
	})
}

// A first start that a power cut ended before the log had its members leaves nothing that has to be removed by hand: the next one begins
// again. bbolt falls back on the commit before the last when the page of the last did not reach the disk.
func TestFirstStartIsCutShort(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	discard := slog.New(slog.DiscardHandler)
	store, err := raftstore.Open(path, discard)
	if err != nil {
		t.Fatal(err)
	}
	conf := raftConfig(newRaftLog(discard))
	_, transport := raft.NewInmemTransport(voter)
	began := (&ledger{store: store, own: voter, dir: dir}).begin(conf, raft.NewInmemSnapshotStore(), transport)
	if err := errors.Join(began, store.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const heads, transaction = 2, 48 // how many pages can be the head, and where in them its commit is numbered
	last := 0
	for i := range heads {
		if at := i * os.Getpagesize(); binary.LittleEndian.Uint64(whole[at+transaction:]) > binary.LittleEndian.Uint64(whole[last+transaction:]) {
			last = at
		}
	}
	clear(whole[last : last+os.Getpagesize()])
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openTestLedger(t, dir, discard)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// torn is an error in the middle of a message, as raft's decoder returns it (decodeError in go-msgpack).
type torn struct{ cause error }

func (t torn) Error() string { return "msgpack decode error [pos 168]: " + t.cause.Error() }
func (t torn) Cause() error  { return t.cause }

// A broken connection is no error in the log: the other coordinator was restarted. A failing disk is one, and so is a coordinator that does
// not trust this one.
func TestGravityOfRaftsErrors(t *testing.T) {
	for name, c := range map[string]struct {
		msg  string
		err  error
		want slog.Level
	}{
		"refused":    {"failed to heartbeat to", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, slog.LevelDebug},
		"hung up":    {"failed to appendEntries to", io.EOF, slog.LevelDebug},
		"own end":    {"failed to decode incoming command", fmt.Errorf("read: %w", net.ErrClosed), slog.LevelDebug},
		"as it ends": {"failed to decode incoming command", raft.ErrTransportShutdown, slog.LevelDebug},
		"cut off":    {"failed to appendEntries to", torn{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}}, slog.LevelDebug},
		"garbled":    {"failed to appendEntries to", torn{errors.New("unrecognized descriptor byte")}, slog.LevelError},
		"handed on":  {ousted, nil, slog.LevelDebug},
		"long away":  {"failed to get log", raft.ErrLogNotFound, slog.LevelDebug}, // it is sent a snapshot
		"disk":       {"failed to append to logs", errors.New("no space left on device"), slog.LevelError},
		"stranger":   {"failed to heartbeat to", &net.OpError{Op: "remote error", Err: errors.New("tls: unknown certificate authority")}, slog.LevelError},
		"of nothing": {"failed to list snapshots", nil, slog.LevelError},
	} {
		if got := gravity(c.msg, []any{"peer", "c2", "error", c.err}); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// A snapshot with a flipped bit is refused, with what to do about it, if the log lacks the entries between it and the older snapshot. Raft
// would take the older one and end the process.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := openTestLedger(t, dir, slog.New(slog.DiscardHandler))
		fill := func(from int) {
			for i := range 300 {
				if _, err := l.do(registration(fmt.Sprintf("n%03d", from+i))); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		fill(0)
		time.Sleep(time.Second) // snapshots are told apart by the clock as well
		fill(300)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		bodies, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
		if err != nil || len(bodies) != 2 {
			t.Fatalf("got %v, %v, want two snapshots", bodies, err)
		}
		newest := bodies[1] // both of one term: the higher index sorts behind, of as many digits
		body, err := os.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		body[len(body)/2] ^= 1
		if err := os.WriteFile(newest, body, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err = tryLedger(t, dir, slog.New(slog.DiscardHandler))
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "snapshots under") || !strings.Contains(err.Error(), "lifeboat raft restore begins") {
			t.Errorf("got %v, want that the snapshot is damaged and what to do", err)
		}
	})
}

// The error of a damaged log in one of several coordinators says to replace that: restored from an older state under its name it would have
// forgotten its votes.
func TestDamagedMemberIsToBeReplaced(t *testing.T) {
	c := ledgerConfig{dir: t.TempDir(), own: "c2", peers: peersNamed(3), log: slog.New(slog.DiscardHandler)}
	if err := os.WriteFile(filepath.Join(c.dir, "raft.db"), bytes.Repeat([]byte{1}, 1<<15), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(c)
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "--replacing c2") || strings.Contains(err.Error(), "empty fleet") {
		t.Errorf("got %v, want how to replace it", err)
	}
}
