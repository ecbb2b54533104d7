package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// journal is what the agent must not forget: the open incident, and how far its drain is. It is one small file, written
// and synced before anything acts on what it says, so that a restart finds the incident with its deadline unchanged.
//
// Each incident has a directory of its own with its plan and its manifest; an ended one's is kept for a while.
type journal struct{ dir string }

// page is what the journal holds.
type page struct {
	Incident preemption.Incident `json:"incident"`
	// Drained says that the drain is over, and what came of it: a restart does not begin it again.
	Drained *migration.Summary `json:"drained,omitempty"`
	// Told says that the coordinator has the manifest.
	Told bool `json:"told,omitempty"`
	// Closed says why the incident is over while the machine is not: withdrawn, or outlived.
	Closed string `json:"closed,omitempty"`
}

// keptIncidents is how many ended incidents' manifests are kept for people to look at.
const keptIncidents = 5

func openJournal(dataDir string) (*journal, error) {
	j := &journal{dir: dataDir}
	if err := os.MkdirAll(filepath.Join(dataDir, "incidents"), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return j, nil
}

func (j *journal) path() string { return filepath.Join(j.dir, "incident.json") }

// incidentDir is where an incident's drain keeps its plan and manifest.
func (j *journal) incidentDir(id string) string { return filepath.Join(j.dir, "incidents", id) }

// read returns what was written last; ok is false when there is nothing. A page that cannot be read is an error: going on
// without it would forget a notice.
func (j *journal) read() (p page, ok bool, err error) {
	b, err := os.ReadFile(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return page{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return page{}, false, fmt.Errorf("read journal %s: %w: remove the file to start without its incident", j.path(), err)
	}
	return p, true, nil
}

// write replaces the page, durably.
func (j *journal) write(p page) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := writeDurably(j.path(), b); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// close ends the incident: its page goes to its directory, and the oldest of those go.
func (j *journal) close(p page) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	dir := j.incidentDir(p.Incident.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	if err := writeDurably(filepath.Join(dir, "incident.json"), b); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	if err := os.Remove(j.path()); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return j.prune()
}

// last is the page of the open incident, or else of the newest one that ended.
func (j *journal) last() (p page, ok bool, err error) {
	if p, ok, err = j.read(); ok || err != nil {
		return p, ok, err
	}
	ended, err := j.ended()
	if err != nil || len(ended) == 0 {
		return page{}, false, err
	}
	b, err := os.ReadFile(filepath.Join(ended[len(ended)-1], "incident.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return page{}, false, nil
	}
	return p, err == nil, err
}

// ended lists the directories of incidents, the oldest first.
func (j *journal) ended() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(j.dir, "incidents"))
	if err != nil {
		return nil, err
	}
	type aged struct {
		dir string
		at  time.Time
	}
	var all []aged
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() {
			all = append(all, aged{j.incidentDir(e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return a.at.Compare(b.at) })
	dirs := make([]string, len(all))
	for i, a := range all {
		dirs[i] = a.dir
	}
	return dirs, nil
}

func (j *journal) prune() error {
	dirs, err := j.ended()
	if err != nil {
		return err
	}
	for _, d := range dirs[:max(0, len(dirs)-keptIncidents)] {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
	}
	return nil
}

// writeDurably replaces a file so that a crash leaves the old one or the new one, whole.
func writeDurably(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
