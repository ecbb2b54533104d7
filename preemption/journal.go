package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lifeboat/lifeboat/durable"
)

// journal keeps what must not be forgotten: the open incident, and what its owner has done about it. It is one small file,
// written and synced before anything acts on it.
//
// Each incident also has a directory for its owner's files; that of an ended incident is kept for a while.
type journal[W any] struct{ dir string }

// keptIncidents is how many ended incidents keep their directories, for people who look at the manifests.
const keptIncidents = 5

func openJournal[W any](dir string) (*journal[W], error) {
	j := &journal[W]{dir: dir}
	if err := os.MkdirAll(j.dirOf(""), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return j, nil
}

func (j *journal[W]) path() string { return filepath.Join(j.dir, "incident.json") }

// dirOf is where an incident's drain keeps its plan and manifest.
func (j *journal[W]) dirOf(id string) string { return filepath.Join(j.dir, "incidents", id) }

// read returns the page that was written last; ok is false when there is none. A page that cannot be read is an error,
// because going on without it would forget a notice.
func (j *journal[W]) read() (p Page[W], ok bool, err error) {
	b, err := os.ReadFile(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return Page[W]{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return Page[W]{}, false, fmt.Errorf("read journal %s: %w: remove the file to start without its incident", j.path(), err)
	}
	return p, true, nil
}

// write replaces the page, which is JSON, durably.
func (j *journal[W]) write(page []byte) error { return durable.WriteFile(j.path(), page) }

// close ends an incident: its page moves to its directory, and the oldest directories are removed. A full disk takes the page once
// the open one is gone, and where it does not, only people miss it: a restart must not begin an incident that is over.
func (j *journal[W]) close(id string, page []byte) error {
	full := j.file(id, page)
	if full != nil && !durable.Full(full) {
		return full
	}
	if err := os.Remove(j.path()); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may never have been written
		return err
	}
	if full != nil {
		_ = j.file(id, page)
	}
	return j.prune(id)
}

// file puts the page of an incident that is over into the incident's directory.
func (j *journal[W]) file(id string, page []byte) error {
	dir := j.dirOf(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, "incident.json"), page)
}

// lastEnded is the page of the newest incident that ended.
func (j *journal[W]) lastEnded() (p Page[W], ok bool, err error) {
	ended, err := durable.Dirs(j.dirOf(""))
	if err != nil || len(ended) == 0 {
		return Page[W]{}, false, err
	}
	b, err := os.ReadFile(filepath.Join(j.dirOf(ended[len(ended)-1].Name()), "incident.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Page[W]{}, false, nil
	}
	return p, err == nil, err
}

// prune removes the oldest directories of ended incidents, but not that of the newest, which looks old if the clock was set
// back meanwhile.
func (j *journal[W]) prune(newest string) error {
	dirs, err := durable.Dirs(j.dirOf(""))
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(dirs, func(d fs.FileInfo) bool { return d.Name() == newest })
	for _, d := range others[:max(0, len(others)-(keptIncidents-1))] {
		if err := os.RemoveAll(j.dirOf(d.Name())); err != nil {
			return err
		}
	}
	return nil
}
