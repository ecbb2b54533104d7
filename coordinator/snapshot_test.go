package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// headed returns a snapshot's body under a head that fits it, apart from what change does.
func headed(t *testing.T, body []byte, change func(*saved)) []byte {
	t.Helper()
	head := saved{Lifeboat: savedKind, Version: registry.CommandVersion, SavedAt: t0, Bytes: len(body), CRC32C: crc32.Checksum(body, castagnoli)}
	change(&head)
	line, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(line, '\n'), body...)
}

// A snapshot is taken whole or refused whole, with the reason, before anything on the disk is changed.
func TestSnapshotThatIsNone(t *testing.T) {
	body := []byte(written(t, registry.New()))
	same := func(*saved) {}
	whole := headed(t, body, same)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-3] ^= 1
	for _, s := range []struct {
		name string
		file []byte
		want string
	}{
		{"whole", whole, ""},
		{"empty", nil, "not a snapshot"},
		{"foreign", []byte("-----BEGIN CERTIFICATE-----\n"), "not a snapshot"},
		{"another's JSON", []byte("{\"a\":1}\n{}"), "not a snapshot"},
		{"of no version", headed(t, body, func(h *saved) { h.Version = 0 }), "not a snapshot"},
		{"newer", headed(t, body, func(h *saved) { h.Version = registry.CommandVersion + 1 }), "restore it with the lifeboat that saved it"},
		{"cut short", whole[:len(whole)-1], "cut short"},
		{"longer", append(bytes.Clone(whole), '\n'), "cut short: it has"},
		{"damaged", flipped, "its checksum is another"},
		{"no machine", headed(t, []byte("[1]"), same), "snapshot"},
	} {
		cfg := Default()
		cfg.DataDir = t.TempDir()
		kept := cfg.DataDir + "/raft.db"
		if err := os.WriteFile(kept, []byte("what is there"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := readSnapshot(bytes.NewReader(s.file))
		if s.want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want it read", s.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), s.want) {
			t.Errorf("%s: got %v, want %q", s.name, err, s.want)
		}
		if _, err := Restore(cfg, bytes.NewReader(s.file), Restorer{}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: it was restored", s.name)
		}
		if is, err := os.ReadFile(kept); err != nil || string(is) != "what is there" {
			t.Errorf("%s: the log that was there is touched (%v)", s.name, err)
		}
	}
}

// A restore whose disk is full in the middle leaves nothing that could start, neither with an empty fleet nor in an old term.
func TestRestoreThatIsCutShortDoesNotStart(t *testing.T) {
	cfg := Default()
	cfg.DataDir = t.TempDir()
	if err := os.WriteFile(cfg.DataDir+"/snapshots", nil, 0o600); err != nil { // where a directory should be
		t.Fatal(err)
	}
	whole := headed(t, []byte(written(t, registry.New())), func(*saved) {})
	if _, err := Restore(cfg, bytes.NewReader(whole), Restorer{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("it was restored")
	}
	if err := os.Remove(cfg.DataDir + "/snapshots"); err != nil {
		t.Fatal(err)
	}
	f, err := openFleet(cfg, nil, Deps{Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		f.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "restore again") {
		t.Errorf("got %v, want that it is to be restored again", err)
	}
	if _, err := Restore(cfg, bytes.NewReader(whole), Restorer{}, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("restored again: %v", err)
	}
	f, err = openFleet(cfg, nil, Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// Until a restore has its log it leaves the one before where it is, and from then on there is none that a coordinator starts with until the
// snapshot is there: each other would be of an empty fleet, or of an older one.
func TestRestoreThatIsCutShortHasNoOtherFleetStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		cfg.DataDir = t.TempDir()
		log := slog.New(slog.DiscardHandler)
		restored := func() error {
			whole := headed(t, []byte(written(t, registry.New())), func(*saved) {})
			_, err := Restore(cfg, bytes.NewReader(whole), Restorer{}, log)
			return err
		}
		l := openTestLedger(t, cfg.DataDir, log)
		_, err := l.do(registration("n"))
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		draft := filepath.Join(cfg.DataDir, "raft.db.draft")
		if err := os.MkdirAll(filepath.Join(draft, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		if restored() == nil {
			t.Error("it was restored though no log could be made")
		}
		if err := os.RemoveAll(draft); err != nil {
			t.Fatal(err)
		}
		l = openTestLedger(t, cfg.DataDir, log)
		if last := l.raft.LastIndex(); last < 3 {
			t.Errorf("the log before is gone: one of %d entries is there", last)
		}
		if err := errors.Join(l.Close(), restored()); err != nil { // a snapshot is there now, as before most restores
			t.Fatal(err)
		}
		if err := os.WriteFile(draft, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := raftstore.Open(draft, log)
		if err == nil {
			err = errors.Join(store.SetUint64(unrestored, 1), store.Close(), os.Rename(draft, filepath.Join(cfg.DataDir, "raft.db")))
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := openFleet(cfg, nil, Deps{Log: log})
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "restore again") {
			t.Errorf("got %v, want that it is to be restored again", err)
		}
		time.Sleep(time.Second) // what is put aside is named by the second
		if err := restored(); err != nil {
			t.Errorf("restored again: %v", err)
		}
	})
}

// root restores, and the coordinator runs as the user whom data_dir belongs to: what a restore makes, and what it puts aside, is that
// user's.
func TestRestoreByRootIsTheCoordinators(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root restores for another user")
	}
	const coordinators = 12345
	cfg := Default()
	cfg.DataDir = t.TempDir()
	if err := os.Chown(cfg.DataDir, coordinators, coordinators); err != nil {
		t.Fatal(err)
	}
	whole := headed(t, []byte(written(t, registry.New())), func(*saved) {})
	for range 2 { // the second puts aside what the first made
		if _, err := Restore(cfg, bytes.NewReader(whole), Restorer{}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != coordinators || s.Gid != coordinators {
			t.Errorf("%s belongs to %d:%d, want the owner of data_dir", path, s.Uid, s.Gid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Events after a restore come after those in the snapshot, even if it has many terms: a follower goes on from where it was, and gets no event
// twice.
func TestEventsGoOnAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
		cfg := Default()
		cfg.DataDir = dir
		var file bytes.Buffer
		var was []api.Place
		for i := range 6 { // each start is a term
			l := openTestLedger(t, dir, log)
			if _, err := l.do(registration(fmt.Sprintf("n%d", i))); err != nil {
				t.Fatal(err)
			}
			was = placesFrom(t, l, api.Place{})
			if i == 3 {
				l.view(func(m *registry.Registry) {
					if err := writeSnapshot(m, &file); err != nil {
						t.Fatal(err)
					}
				})
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []string{dir, t.TempDir()} { // where it was, and on a new machine
			cfg.DataDir = d
			if _, err := Restore(cfg, bytes.NewReader(file.Bytes()), Restorer{}, log); err != nil {
				t.Fatal(err)
			}
			l := openTestLedger(t, d, log)
			if _, err := l.do(registration("later")); err != nil {
				t.Fatal(err)
			}
			is := placesFrom(t, l, api.Place{})
			if len(is) != 5 || !slices.Equal(is[:4], was[:4]) || !slices.IsSortedFunc(is, api.Place.Compare) {
				t.Fatalf("got %v after the restore, want %v and one more", is, was[:4])
			}
			if got := placesFrom(t, l, was[3]); !slices.Equal(got, is[4:]) {
				t.Errorf("after %s: got %v, want %v", was[3], got, is[4:])
			}
			if d == dir {
				if got := placesFrom(t, l, was[4]); len(got) != 1+len(is) {
					t.Errorf("after %s, which the restore undid: got %v, want to be told of a gap, and all that there is", was[4], got)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	kept := []registry.Event{{Index: 1, Term: 6}, {Index: 2, Term: 2}} // of a log that an older lifeboat restored
	for _, at := range []api.Place{{Index: 1, Term: 6}, {Index: 2, Term: 2}} {
		if strange(at, kept, 2, 2) {
			t.Errorf("%s is in the log, and is taken for a place that it never had", at)
		}
	}
}

// placesFrom returns the places of the events that a follower gets after a place.
func placesFrom(t *testing.T, l *ledger, at api.Place) (all []api.Place) {
	t.Helper()
	r := &reader{replica: l.fsm, at: at}
	l.fsm.hub.enter(l.term())
	for range 100 {
		events, _ := r.more()
		if len(events) == 0 {
			return all
		}
		all = append(all, places(events)...)
	}
	t.Fatalf("after %s: no end of events: %v ...", at, all[:min(len(all), 12)])
	return nil
}
