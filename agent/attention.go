package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// attended is what was done about one workload. It is plain data, kept as JSON in a file of its own and not on the
// incident's page: a workload is told that the machine stays after the incident is over, and a restart must not forget that.
type attended struct {
	// Word is what the workload was told last, or is being told. Arrived: it has heard it. GivenUp: it is not told any more.
	Word    workloads.Word `json:"word,omitzero"`
	Lead    *time.Duration `json:"lead,omitempty"` // to the deadline that was told; nil: none was known
	Arrived bool           `json:"arrived,omitempty"`
	GivenUp bool           `json:"given_up,omitempty"`
	Trouble string         `json:"trouble,omitempty"`

	// Incident is the one that the fields below are about.
	Incident  string               `json:"incident,omitempty"`
	Processes []workloads.Identity `json:"processes,omitempty"` // when the node began to leave
	Asked     []workloads.Identity `json:"asked,omitempty"`     // by SIGTERM, and what they had started
	Stopping  bool                 `json:"stopping,omitempty"`
	Killed    bool                 `json:"killed,omitempty"`
}

// attention is what was done about all workloads, by their names. A file keeps it.
type attention struct {
	path   string
	disk   *durable.Beside // writes it
	writes sync.Mutex      // held while an entry is changed and written; mu is not: a disk may hang, and the heartbeat takes mu

	mu   sync.Mutex // guards what follows
	boot string
	all  map[string]attended

	stirred await.News // there is something to look at
}

// attentionFile is what the file holds.
type attentionFile struct {
	Boot      string              `json:"boot"`
	Workloads map[string]attended `json:"workloads"`
}

// openAttention reads the file. If it returns an error the attention is empty, and usable all the same.
func openAttention(path, boot string, disk *durable.Beside) (*attention, error) {
	t := &attention{path: path, disk: disk, boot: boot, all: map[string]attended{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	var f attentionFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return t, fmt.Errorf("read what was done about workloads: %w", err)
	}
	for name, d := range f.Workloads {
		if f.Boot != boot { // the processes that were told and asked to end are gone, and those that run now were told nothing
			stays := d.Word.Phase == workloads.PhaseWithdrawn
			d = attended{Word: d.Word, Lead: d.Lead, Arrived: d.Arrived && stays, GivenUp: d.GivenUp && stays}
		}
		t.all[name] = d
	}
	return t, nil
}

func (t *attention) of(name string) attended {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[name]
}

// amend changes what is known of a workload, on disk first. Where the disk fails or hangs, the change stands all the same.
func (t *attention) amend(name string, change func(*attended)) (attended, error) {
	t.writes.Lock()
	defer t.writes.Unlock()
	t.mu.Lock()
	all := maps.Clone(t.all)
	t.mu.Unlock()
	d := all[name]
	change(&d)
	all[name] = d
	b, err := json.Marshal(attentionFile{t.boot, all})
	if err == nil {
		err = t.disk.Do("workloads", func() error { return durable.WriteFile(t.path, b) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = all
	return d, err
}

// boot names this boot of the machine.
func (a *Agent) boot() string {
	if a.deps.Clock != nil {
		return a.deps.Clock().Boot
	}
	return preemption.Now().Boot
}
