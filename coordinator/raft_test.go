package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
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

func registration(name string) command {
	return command{Do: doRegister, Nodes: []string{name}, Facts: &facts{Incarnation: "i", PeerAddress: name + ":1"}}
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
		l.view(func(m *machine) { want = written(t, m) })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openTestLedger(t, dir, log)
		defer l.Close()
		l.view(func(m *machine) {
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
		if err := l.raft.Apply(fmt.Appendf(nil, `{"v":%d,"do":"fly"}`, commandVersion+1), 0).Error(); err != nil {
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

// A full disk: decisions are refused with a word on why, everything else goes on, and it passes.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		l := openTestLedger(t, t.TempDir(), slog.New(slog.NewTextHandler(&said, nil)))
		limit := func(bytes int) {
			l.store.db.Update(func(*bolt.Tx) error { // for its lock alone: nothing is committed
				l.store.db.MaxSize = bytes
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
		synctest.Wait() // who writes to the log has written
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
		l.view(func(m *machine) {
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
		// What a kill -9 leaves: the files as they are, with nobody having closed them.
		copied := v.TempDir()
		if err := os.WriteFile(filepath.Join(copied, "raft.db"), read(v.T, filepath.Join(v.cfg.DataDir, "raft.db")), 0o600); err != nil {
			v.Fatal(err)
		}
		v.stop()
		v.cfg.DataDir = copied
		v.start()
		v.is("a", Decommissioning)
		_, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "b"})
		v.refused(err, codes.NotFound, "b")
	})
}

// torn is as raft's decoder tells an error amid a message (decodeError in go-msgpack).
type torn struct{ cause error }

func (t torn) Error() string { return "msgpack decode error [pos 168]: " + t.cause.Error() }
func (t torn) Cause() error  { return t.cause }

// A line that broke is no error: the other coordinator was restarted. A disk that fails is, and so is one that does not trust this one.
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
