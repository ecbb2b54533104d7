package agent

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// byOperator is the By of an evacuation that an operator ordered; otherwise it is the health of the disk.
const byOperator = "operator"

// evacuation is the newest evacuation of one directory. A record is replaced, never changed.
type evacuation struct {
	ID    string            `json:"id"`
	Path  string            `json:"path"`
	By    string            `json:"by"`
	At    time.Time         `json:"at"`
	Ended time.Time         `json:"ended,omitzero"`
	Sum   *manifest.Summary `json:"summary,omitempty"` // once it ended
}

// evacuations empties disks while the node stays, and remembers across restarts which are to be emptied.
type evacuations struct {
	log         *slog.Logger
	disks       *landing
	incidents   *incidents
	limits      *rules
	fleet       *fleet
	drainConfig func(id, dir string, cap config.Bytes) migration.DrainConfig

	dir    string          // of the accounts, and of the list
	disk   *durable.Beside // writes the list
	writes sync.Mutex      // held while the list is written; mu is not: a disk may hang

	mu      sync.Mutex // guards what follows
	all     []evacuation
	running string           // id; empty: none
	drain   *migration.Drain // of the running one

	changed await.News
}

// openEvacuations reads the list that an earlier process wrote. If it returns an error the list is empty.
func openEvacuations(dir string, disk *durable.Beside) (*evacuations, error) {
	e := &evacuations{dir: dir, disk: disk}
	b, err := os.ReadFile(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &e.all)
	}
	if err != nil {
		e.all = nil
		return e, fmt.Errorf("read the evacuations in %s: %w", e.file(), err)
	}
	return e, nil
}

func (e *evacuations) file() string { return filepath.Join(e.dir, "list.json") }

// accounts is where the drain of an evacuation keeps its plan and its account.
func (e *evacuations) accounts(id string) string { return filepath.Join(e.dir, id) }

// edit changes the list, and then the file. When that fails the change holds all the same, until a restart: a disk that
// is dying must not be left because another one is full.
func (e *evacuations) edit(change func([]evacuation) []evacuation) error {
	e.writes.Lock()
	defer e.writes.Unlock()
	e.mu.Lock()
	e.all = change(slices.Clone(e.all))
	b, err := json.Marshal(e.all)
	e.changed.Tell()
	e.mu.Unlock()
	if err == nil {
		err = e.disk.Do("evacuations", func() error {
			if err := os.MkdirAll(e.dir, 0o700); err != nil {
				return err
			}
			return durable.WriteFile(e.file(), b)
		})
	}
	if err != nil {
		return fmt.Errorf("write the evacuations: %w", err)
	}
	return nil
}

// ask adds an evacuation of a directory. One that is under way goes on, and becomes the operator's if an operator asks. One
// that has ended begins again with its account: what it moved is not sent again while a peer has it.
func (e *evacuations) ask(path, by string, now time.Time) error {
	return e.edit(func(all []evacuation) []evacuation {
		i := slices.IndexFunc(all, func(v evacuation) bool { return v.Path == path })
		switch {
		case i < 0:
			return append(all, evacuation{ID: newEvacuation(), Path: path, By: by, At: now})
		case !all[i].Ended.IsZero():
			all[i] = evacuation{ID: all[i].ID, Path: path, By: by, At: now}
		case by == byOperator:
			all[i].By = by
		}
		return all
	})
}

func newEvacuation() string {
	var id [6]byte
	rand.Read(id[:])
	return "evac-" + hex.EncodeToString(id[:])
}

// drop takes evacuations back. One that runs ends by itself once it is no longer in the list.
func (e *evacuations) drop(which func(evacuation) bool) (dropped []evacuation, err error) {
	running := ""
	err = e.edit(func(all []evacuation) []evacuation {
		running = e.running
		return slices.DeleteFunc(all, func(v evacuation) bool {
			if which(v) {
				dropped = append(dropped, v)
			}
			return which(v)
		})
	})
	for _, v := range dropped {
		if v.ID != running {
			e.leave(v.ID)
		}
	}
	return dropped, err
}

// keptEvacuations is how many accounts are kept of evacuations that were taken back or whose disks turned out well: the
// blocks that they moved may still change here. It is as many as for ended incidents (preemption.keptIncidents).
const keptEvacuations = 5

// leave keeps the account of a dropped evacuation, and removes the oldest ones beyond keptEvacuations. An account that
// cannot be removed does no harm.
func (e *evacuations) leave(id string) {
	now := time.Now()
	_ = os.Chtimes(e.accounts(id), now, now)
	left, _ := durable.Dirs(e.dir)
	left = slices.DeleteFunc(left, func(d fs.FileInfo) bool { return e.wanted(d.Name()) })
	for _, d := range left[:max(0, len(left)-keptEvacuations)] {
		_ = os.RemoveAll(e.accounts(d.Name()))
	}
}

// moved lists the accounts of evacuations, except those that were dropped before the given time.
func (e *evacuations) moved(before time.Time) (dirs []string) {
	all, _ := durable.Dirs(e.dir)
	for _, d := range all {
		if e.wanted(d.Name()) || d.ModTime().After(before) {
			dirs = append(dirs, e.accounts(d.Name()))
		}
	}
	return dirs
}

// over lists those of them that no running evacuation writes to.
func (e *evacuations) over(before time.Time) (dirs []string) {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	return slices.DeleteFunc(e.moved(before), func(dir string) bool { return running != "" && dir == e.accounts(running) })
}

func (e *evacuations) end(id string, sum manifest.Summary, now time.Time) error {
	return e.edit(func(all []evacuation) []evacuation {
		if i := slices.IndexFunc(all, func(v evacuation) bool { return v.ID == id }); i >= 0 {
			all[i].Ended, all[i].Sum = now, &sum
		}
		return all
	})
}

// next returns the evacuation that comes first, of those that have not ended and may run: a dying disk comes before those that
// are to be emptied though they are well.
func (e *evacuations) next(may func(evacuation) bool) (first evacuation, ok bool) {
	for _, v := range e.list() {
		if v.Ended.IsZero() && may(v) && (!ok || v.before(first)) {
			first, ok = v, true
		}
	}
	return first, ok
}

func (v evacuation) before(other evacuation) bool {
	return v.By != byOperator && other.By == byOperator
}

func (e *evacuations) list() []evacuation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

func (e *evacuations) wanted(id string) bool {
	return slices.ContainsFunc(e.list(), func(v evacuation) bool { return v.ID == id })
}

// of returns the evacuation of exactly this directory.
func (e *evacuations) of(path string) (evacuation, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.all, func(v evacuation) bool { return v.Path == path })
	if i < 0 {
		return evacuation{}, false
	}
	return e.all[i], true
}

// closed reports whether an operator wants nothing more put in this directory. Evacuations ordered for a disk's health close
// nothing here: the health itself keeps blocks away until the disk is well.
func (e *evacuations) closed(path string) bool {
	v, ok := e.of(path)
	return ok && v.By == byOperator
}

func (e *evacuations) begin(id string, d *migration.Drain) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.drain = id, d
}

// limit changes the cap of the evacuation that runs, if there is one.
func (e *evacuations) limit(l Drain) {
	e.mu.Lock()
	d := e.drain
	e.mu.Unlock()
	if d != nil {
		d.Limit(int64(l.PreCopyBytesPerSecond))
	}
}

// progress is how far the drain of an evacuation is, while it runs.
func (e *evacuations) progress(id string) (migration.Progress, bool) {
	e.mu.Lock()
	d := e.drain
	if id == "" || e.running != id {
		d = nil
	}
	e.mu.Unlock()
	if d == nil {
		return migration.Progress{}, false
	}
	return d.Progress(), true
}
