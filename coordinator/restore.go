package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/durable"
)

// saved is the first line of a snapshot file. The registry as JSON follows.
type saved struct {
	Lifeboat string    `json:"lifeboat"`
	Version  int       `json:"version"` // registry.CommandVersion of the lifeboat that saved it
	SavedAt  time.Time `json:"saved_at"`
	Bytes    int       `json:"bytes"`
	CRC32C   uint32    `json:"crc32c"`
}

const (
	savedKind = "snapshot"
	// maxSnapshot is far above the bytes of a registry of 100,000 nodes.
	maxSnapshot = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func writeSnapshot(m *registry.Registry, to io.Writer) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	head, err := json.Marshal(saved{savedKind, registry.CommandVersion, time.Now().UTC().Round(0), len(body), crc32.Checksum(body, castagnoli)})
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	_, err = to.Write(append(append(head, '\n'), body...))
	return err
}

// readSnapshot reads a snapshot file, and refuses one that is cut short or damaged.
func readSnapshot(from io.Reader) (*registry.Registry, saved, error) {
	all, err := io.ReadAll(io.LimitReader(from, maxSnapshot+1))
	if err != nil {
		return nil, saved{}, err
	}
	line, body, whole := bytes.Cut(all, []byte("\n"))
	var head saved
	switch err := json.Unmarshal(line, &head); {
	case len(all) > maxSnapshot:
		return nil, head, fmt.Errorf("larger than %d bytes", maxSnapshot)
	case err != nil || !whole || head.Lifeboat != savedKind || head.Version < 1:
		return nil, head, errors.New("not a snapshot of lifeboat raft snapshot")
	case head.Version > registry.CommandVersion:
		return nil, head, fmt.Errorf("of version %d, this lifeboat reads up to %d: restore it with the lifeboat that saved it", head.Version, registry.CommandVersion)
	case len(body) != head.Bytes:
		return nil, head, fmt.Errorf("cut short: it has %d bytes of %d", len(body), head.Bytes)
	case crc32.Checksum(body, castagnoli) != head.CRC32C:
		return nil, head, errors.New("damaged: its checksum is another")
	}
	m, err := registry.Thaw(body)
	return m, head, err
}

// Restored says what Restore has done.
type Restored struct {
	SavedAt time.Time
	Nodes   int
	Members []string // empty: this coordinator on its own
	Aside   string   // the directory that has the former log now; empty: there was none
	Revoked int      // names whose certificates are refused, without those that were revoked after the snapshot
	Tokens  int      // that machines may join with now, with those that were used up or revoked after the snapshot
}

// Restorer is who restores a snapshot, and why.
type Restorer struct{ Who, Reason string }

// Restore makes a log in data_dir that begins with a snapshot and has the members of the settings. A former log is put aside, not
// removed. No coordinator may run on data_dir meanwhile.
func Restore(cfg Config, from io.Reader, by Restorer, log *slog.Logger) (done Restored, err error) {
	m, head, err := readSnapshot(from)
	if err != nil {
		return Restored{}, fmt.Errorf("snapshot: %w", err)
	}
	done = Restored{SavedAt: head.SavedAt, Nodes: len(m.Nodes), Members: namesOf(cfg.Peers)}
	now := time.Now()
	done.Revoked = len(m.Door.Revoked)
	for _, t := range m.Door.Tokens {
		if t.Uses != 0 && now.Before(t.Expires) {
			done.Tokens++
		}
	}
	m.Restored(by.Who, by.Reason, head.SavedAt, now.UTC().Round(0))
	if own, ok := cfg.own(); ok && own != cfg.Peers[0] {
		return Restored{}, fmt.Errorf("restore on %s, the first of peers, with data_dir of the others empty: they join it", cfg.Peers[0].Name)
	}
	if err := makeDir(cfg.DataDir); err != nil {
		return Restored{}, fmt.Errorf("data_dir: %w", err)
	}
	was := filepath.Join(cfg.DataDir, "raft.db")
	had, err := termOf(was)
	if err != nil {
		return Restored{}, err
	}
	draft := filepath.Join(cfg.DataDir, "raft.db.draft")
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) { // of a restore that was cut short
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	store, err := raftstore.Open(draft, log)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	term := max(1, had, newestTerm(m.Events)) // events are ordered by term first: with a lower term the next would come before the last
	if err := errors.Join(store.SetUint64(raftstore.CurrentTerm, term), store.SetUint64(unrestored, 1)); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	if done.Aside, err = replace(was, draft); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(cfg.DataDir, snapshotsKept, newRaftLog(log))
	if err != nil {
		return Restored{}, err
	}
	_, nowhere := raft.NewInmemTransport(voter)
	sink, err := snapshots.Create(raft.SnapshotVersionMax, 1, term, members(cfg.Peers), 1, nowhere)
	if err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	if err := (frozen{m}).Persist(sink); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	if err := store.SetUint64(unrestored, 0); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	made := []string{"raft.db", "snapshots"}
	if done.Aside != "" {
		made = append(made, filepath.Base(done.Aside))
	}
	if err := handOver(cfg.DataDir, made); err != nil {
		return Restored{}, fmt.Errorf("restore: let the coordinator write in data_dir: %w", err)
	}
	return done, nil
}

// handOver gives what a restore made in data_dir to the owner of data_dir. root restores, and the coordinator runs as another user, who
// could not open root's log. Links are not followed.
func handOver(dataDir string, made []string) error {
	if os.Geteuid() != 0 {
		return nil // it is the restorer's own
	}
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	for _, name := range made {
		err := fs.WalkDir(root.FS(), name, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return root.Lchown(path, int(owner.Uid), int(owner.Gid))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func newestTerm(events []registry.Event) (term uint64) {
	for _, e := range events {
		term = max(term, e.Term)
	}
	return term
}

// termOf returns the term of a log; 0: there is none, or it cannot be read, which may be why there is a restore.
func termOf(path string) (term uint64, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	store, err := raftstore.Open(path, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, raftstore.ErrInUse):
		return 0, err
	case err != nil:
		return 0, nil
	}
	term, _ = store.GetUint64(raftstore.CurrentTerm)
	if err := store.Close(); err != nil {
		return 0, fmt.Errorf("restore: %w", err)
	}
	return term, nil
}

// unrestored is 1 in a log until the snapshot is there that it begins with. begin refuses such a log.
var unrestored = []byte("LifeboatUnrestored")

// replace has a new log take the place of another, which is put aside with its snapshots to a directory beside it; "": there was none. At each
// moment there is a log, the old one or the new one that begin refuses: a coordinator that started without would begin an empty fleet, in
// which nobody is revoked. Manifests stay: the restored log says which of them count.
func replace(was, draft string) (aside string, err error) {
	dir := filepath.Dir(was)
	if _, err := os.Stat(was); !errors.Is(err, os.ErrNotExist) {
		aside = filepath.Join(dir, "before-restore-"+time.Now().UTC().Format("20060102T150405Z"))
		if err := os.Mkdir(aside, 0o700); err != nil {
			return "", err
		}
		if err := errors.Join(os.Link(was, filepath.Join(aside, "raft.db")), durable.SyncDir(aside)); err != nil {
			return "", err
		}
	}
	if err := errors.Join(os.Rename(draft, was), durable.SyncDir(dir)); err != nil {
		return "", err
	}
	if aside == "" {
		return "", nil
	}
	if err := os.Rename(filepath.Join(dir, "snapshots"), filepath.Join(aside, "snapshots")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return aside, errors.Join(durable.SyncDir(aside), durable.SyncDir(dir))
}
